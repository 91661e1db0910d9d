"""The generic plan of a statement, as a prepared connection runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import TupleRow

NAMED = re.compile(r"%\((\w+)\)[bs]")


class Prepared:
    """A statement prepared once; `plan` runs it and rolls back. A database's plan lasts until DISCARD PLANS, as a worker's does."""

    def __init__(self, connection: Connection[TupleRow], statement: str) -> None:
        self.connection = connection
        self.names = list(dict.fromkeys(NAMED.findall(statement)))
        numbered = NAMED.sub(lambda m: f"${self.names.index(m[1]) + 1}", statement)
        connection.execute("DEALLOCATE ALL", prepare=False)
        connection.execute(f"PREPARE measured AS {numbered}".encode(), prepare=False)

    def plan(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The plan with its actual rows and buffers; nothing that it changed stays."""
        arguments = sql.SQL(", ").join(sql.Literal(values[name]) for name in self.names)
        call = sql.SQL("measured({})").format(arguments) if self.names else sql.SQL("measured")
        query = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {}").format(call)
        with self.connection.transaction(force_rollback=True):
            row = self.connection.execute(query, prepare=False).fetchone()
        assert row is not None
        found: dict[str, Any] = row[0][0]["Plan"]
        return found


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every node of a plan, itself first."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def buffers(plan: Mapping[str, Any]) -> int:
    """Pages that the whole plan touched."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def seq_scanned(plan: Mapping[str, Any]) -> set[str]:
    """Tables and partitions that are read from end to end."""
    return {str(n["Relation Name"]) for n in nodes(plan) if n["Node Type"] == "Seq Scan"}


def indexes(plan: Mapping[str, Any]) -> set[str]:
    return {str(n["Index Name"]) for n in nodes(plan) if "Index Name" in n}
