"""Batches as they are read: the row, its live sums, what of it waits or runs, and what the workers last decided."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import explain
from slackwater.explain import DECISION_MAX_AGE_SECONDS, Decision, Reason
from slackwater.lifecycle import BatchState
from slackwater.storage import line_view
from slackwater.storage.line_view import NOBODY, Line
from slackwater.wire.batch import COUNT_COLUMNS, Counts, batch_object

WAITING = ("waiting_reason", "place_in_line", "estimated_completion_at")
# Sums over the slots, segments and leases are made only for batches that may still change.
VIEW = f"""
SELECT b.*, p.*, s.ready, s.delayed, l.running, m.models
  FROM batch b
  LEFT JOIN LATERAL (SELECT {COUNT_COLUMNS} FROM progress
                      WHERE tenant_id = b.tenant_id AND batch_id = b.id AND b.counts IS NULL) p ON true
  LEFT JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state <> 0) AS delayed
                       FROM segment WHERE tenant_id = b.tenant_id AND batch_id = b.id AND b.state IN (1, 6)) s ON true
  LEFT JOIN LATERAL (SELECT coalesce(sum(n), 0) AS running FROM lease
                      WHERE tenant_id = b.tenant_id AND batch_id = b.id AND b.state IN (1, 6) AND expires_at > now()) l ON true
  LEFT JOIN LATERAL (SELECT json_object_agg(bm.model_id, model.name) AS models FROM batch_model bm JOIN model ON model.id = bm.model_id
                      WHERE bm.tenant_id = b.tenant_id AND bm.batch_id = b.id) m ON true
 WHERE b.tenant_id = :tenant_id
"""
FIND = text(VIEW + " AND b.public_id = :public_id")
LIST = text(
    VIEW
    + """
   AND b.response IS NULL
   AND (CAST(:cursor AS bigint) IS NULL OR b.id < :cursor) AND (CAST(:state AS smallint) IS NULL OR b.state = :state)
   AND (CAST(:metadata AS jsonb) IS NULL OR CAST(b.metadata AS jsonb) @> CAST(:metadata AS jsonb))
 ORDER BY b.id DESC LIMIT :limit
"""
)
CURSOR = text("SELECT id FROM batch WHERE tenant_id = :tenant_id AND public_id = :public_id")
DECISIONS = text(f"""
SELECT DISTINCT ON (d.worker_id, im.model_id) im.model_id, i.name AS instance, d.admitted, d.reason,
       extract(epoch FROM now() - d.at)::float AS age_seconds, d.details->>'message' AS details,
       coalesce(im.paused_until > now(), false) AS is_paused
  FROM instance_model im
  JOIN instance i ON i.id = im.instance_id AND i.disabled_at IS NULL
  JOIN decision d ON d.instance_id = im.instance_id AND d.at > now() - interval '{DECISION_MAX_AGE_SECONDS} s'
 WHERE im.model_id = ANY(:models)
 ORDER BY d.worker_id, im.model_id, d.at DESC
""")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a page of the list is asked for; `metadata` are pairs that each batch must have."""

    limit: int
    cursor: int | None = None
    state: BatchState | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


async def find(connection: AsyncConnection, tenant_id: int, public_id: str) -> RowMapping | None:
    """The batch and what belongs to its object, if the tenant has it."""
    values = {"tenant_id": tenant_id, "public_id": public_id}
    return (await connection.execute(FIND, values)).mappings().first()


async def cursor_of(connection: AsyncConnection, tenant_id: int, public_id: str) -> int | None:
    """The place in the list that an id stands for."""
    values = {"tenant_id": tenant_id, "public_id": public_id}
    return (await connection.execute(CURSOR, values)).scalar_one_or_none()


async def listed(connection: AsyncConnection, tenant_id: int, asked: Listing) -> tuple[Sequence[RowMapping], bool]:
    """One page, the newest first, and whether there is another."""
    values = {
        "tenant_id": tenant_id,
        "limit": asked.limit + 1,
        "cursor": asked.cursor,
        "state": None if asked.state is None else int(asked.state),
        "metadata": json.dumps(dict(asked.metadata)) if asked.metadata else None,
    }
    rows = (await connection.execute(LIST, values)).mappings().all()
    return rows[: asked.limit], len(rows) > asked.limit


async def waiting(connection: AsyncConnection, row: RowMapping) -> dict[str, Any]:
    """Why the batch of a row waits, its place in line and its estimated end; nulls where it does not."""
    shown = (await objects(connection, [row]))[0]
    return {name: shown[name] for name in WAITING}


async def objects(connection: AsyncConnection, rows: Sequence[RowMapping]) -> list[dict[str, Any]]:
    """The OpenAI objects of rows that `find` or `listed` gave: all of one tenant."""
    decided = await _decisions(connection, {int(key) for row in rows for key in row["models"] or ()})
    in_line = next((row["tenant_id"] for row in rows if row["state"] == BatchState.IN_PROGRESS), None)
    line = NOBODY if in_line is None else await line_view.read(connection, in_line)
    return [_object(dict(row), decided, line) for row in rows]


def _object(row: Mapping[str, Any], decided: Mapping[int, Sequence[Decision]], line: Line) -> dict[str, Any]:
    models: Mapping[str, str] = row["models"] or {}
    reason = explain.waiting(
        BatchState(row["state"]),
        ready=row["ready"],
        delayed=row["delayed"],
        running=row["running"],
        decisions=[d for key in models for d in decided.get(int(key), ())],
    )
    return batch_object(
        row,
        Counts.of(row["counts"] or row),
        running=int(row["running"]),
        waiting={"waiting_reason": reason} | line.told(row["id"]),
        model=next(iter(models.values())) if len(models) == 1 else None,
    )


async def _decisions(connection: AsyncConnection, models: Iterable[int]) -> Mapping[int, Sequence[Decision]]:
    wanted = sorted(models)
    found: defaultdict[int, list[Decision]] = defaultdict(list)
    for row in (await connection.execute(DECISIONS, {"models": wanted})).mappings() if wanted else ():
        found[row["model_id"]].append(_decision(dict(row)))
    return found


def _decision(row: Mapping[str, Any]) -> Decision:
    if row["is_paused"]:
        return Decision(row["instance"], False, Reason.MODEL_PAUSED, row["age_seconds"])
    reason = row["reason"] if row["reason"] in tuple(Reason) else None
    return Decision(row["instance"], row["admitted"], reason, row["age_seconds"], row["details"])
