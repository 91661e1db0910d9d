"""End a batch whose every line has a result: freeze its counts and its files, and write its event, in one transaction.

Depends on no notification: the sums of `progress` say what is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import TupleRow, dict_row

from scheduler.duties import told
from scheduler.duties.each import each
from scheduler.queue import statements
from slackwater.lifecycle import BatchState, Side, may_become
from slackwater.settings import Settings
from slackwater.wire.batch import COUNT_COLUMNS, Counts

EVERY: Final = 256
DONE: Final = """
SELECT b.tenant_id, b.id FROM batch b
  LEFT JOIN LATERAL (
    SELECT sum(succeeded + failed + expired + cancelled) AS done FROM progress p WHERE p.tenant_id = b.tenant_id AND p.batch_id = b.id) d ON true
 WHERE b.state IN (1, 2, 6) AND coalesce(d.done, 0) >= b.total
 ORDER BY b.id LIMIT 100
"""
# Guarantees: a batch whose lines are all there completes even where its window has just ended; whoever locks the row decides.
COMPLETE: Final = """
UPDATE batch SET state = 2, ending = 3, finalizing_at = now() WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND state = 1
"""
# Guarantees: one finaliser at a time; a second passes the row over.
LOCK: Final = """
SELECT * FROM batch WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND state IN (2, 6) FOR UPDATE SKIP LOCKED
"""
FREEZE: Final = """
UPDATE batch SET state = %(state)s, counts = %(counts)s,
       completed_at = CASE WHEN %(state)s = 3 THEN now() END, expired_at = CASE WHEN %(state)s = 5 THEN now() END,
       cancelled_at = CASE WHEN %(state)s = 7 THEN now() END
 WHERE tenant_id = %(tenant_id)s AND id = %(id)s
"""
LINES: Final = """
SELECT line, octet_length(body) FROM result
 WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s AND (outcome = 0) = %(is_output)s ORDER BY {order}
"""
ORDERS: Final = {"input": LINES.format(order="line"), "completion": LINES.format(order="at, line")}
INDEX: Final = """
INSERT INTO output_index (tenant_id, batch_id, side, bytes, lines, line, start, ordered)
VALUES (%(tenant_id)s, %(id)s, %(side)s, %(bytes)s, %(lines)s, %(line)s, %(start)s, %(ordered)s)
"""
SET_BYTES: Final = """
UPDATE file SET bytes = %(bytes)s, created_at = now(), is_complete = true,
       expires_at = now() + coalesce(%(output_expires_after_seconds)s, 2592000) * interval '1 second'
 WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s AND side = %(side)s
"""
DROP_EMPTY: Final = "DELETE FROM file WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s AND side = %(side)s"


def step(connection: Connection[TupleRow], settings: Settings) -> int:
    """Finalise every batch that is done."""
    rows = connection.execute(DONE).fetchall()
    return each(rows, lambda row: finalise(connection, *row))


def finalise(connection: Connection[TupleRow], tenant_id: int, batch_id: int) -> int:
    """Finalise one batch whose lines all have a result; 0 where another process has it."""
    where = {"tenant_id": tenant_id, "id": batch_id}
    connection.execute(COMPLETE, where)
    with connection.transaction():
        batch = connection.cursor(row_factory=dict_row).execute(LOCK, where).fetchone()
        if batch is None:
            return 0
        counts = _counts(connection, where)
        if counts.done < batch["total"]:
            return 0
        _finish(connection, batch, counts)
    return 1


def _finish(connection: Connection[TupleRow], batch: dict[str, Any], counts: Counts) -> None:
    old = BatchState(batch["state"])
    new = BatchState.CANCELLED if old is BatchState.CANCELLING else BatchState(batch["ending"])
    if new is BatchState.EXPIRED and not counts.expired:
        new = BatchState.COMPLETED  # What ran when the window ended has brought every answer.
    assert may_become(old, new)
    _sweep(connection, batch["id"])
    for side in Side if batch["response"] is None else ():
        _freeze_side(connection, batch, side)
    connection.execute(FREEZE, batch | {"state": new.value, "counts": json.dumps(counts.as_json())})
    told.tell(connection, batch, new, counts)


def _sweep(connection: Connection[TupleRow], batch_id: int) -> None:
    """Nothing is left to run. Leases first: who hands one back meanwhile is waited for; then what a claim has just taken."""
    for statement in (statements.DROP_LEASES, statements.DROP_SEGMENTS, statements.DROP_LEASES):
        connection.execute(statement, {"batch_id": batch_id})


def _freeze_side(connection: Connection[TupleRow], batch: dict[str, Any], side: Side) -> None:
    lines: list[int] = []
    start: list[int] = []
    size = 0
    with connection.cursor("lines", binary=True) as cursor:
        cursor.itersize = 5_000
        cursor.execute(ORDERS[batch["output_order"]], batch | {"is_output": side is Side.OUTPUT})
        for line, length in cursor:
            if len(lines) % EVERY == 0:
                start.append(size)
            lines.append(line)
            size += length
    values = batch | {"side": side.value, "bytes": size, "lines": len(lines), "line": lines[::EVERY], "start": start}
    connection.execute(INDEX, values | {"ordered": None if batch["output_order"] == "input" else lines})
    connection.execute(SET_BYTES if lines else DROP_EMPTY, values)


def _counts(connection: Connection[TupleRow], where: Mapping[str, Any]) -> Counts:
    query = f"SELECT {COUNT_COLUMNS} FROM progress WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s"
    return Counts.of(connection.cursor(row_factory=dict_row).execute(query.encode(), where).fetchone())
