"""Background responses: each is a batch of one stored line, in no list of batches or files, with an id of its own kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.lifecycle import BatchState
from slackwater.storage import batch_view, batches, blobs
from slackwater.storage.batches import NewBatch
from slackwater.wire.batch import Counts
from slackwater.wire.response import (
    ENDPOINT,
    SHORT_LIFE_SECONDS,
    Ending,
    ending,
    repeated,
    response_object,
    with_cost,
)
from slackwater.wire.response_events import Event, log
from slackwater.wire.response_request import PRIORITY, CreateResponse

INPUT_PURPOSE: Final = "response"
FIND: Final = text(
    batch_view.VIEW
    + " AND b.public_id = :public_id AND b.response IS NOT NULL AND (b.gone_at IS NULL OR b.gone_at > now())"
)
LINE: Final = text(
    "SELECT body FROM result WHERE tenant_id = :tenant_id AND batch_id = :batch_id ORDER BY line LIMIT 1"
)
# Guarantees: of several deletes at once one finds the response; from its commit on nobody does, and its end, if it is still to come, keeps this.
DELETE: Final = text("""
UPDATE batch SET gone_at = now()
 WHERE tenant_id = :tenant_id AND public_id = :public_id AND response IS NOT NULL AND (gone_at IS NULL OR gone_at > now())
RETURNING id
""")
INPUT: Final = text("""
SELECT data FROM file_chunk WHERE tenant_id = :tenant_id AND file_id = :file_id ORDER BY n
""")


@dataclass(frozen=True, slots=True)
class Found:
    """One reading of a response: its row, and how it ended, None while it may still complete."""

    row: RowMapping
    ended: Ending | None

    @property
    def is_running(self) -> bool:
        """A worker has it, or its answer is stored and its end is about to be."""
        is_ending = self.row["state"] == BatchState.FINALIZING and self.row["ending"] == BatchState.COMPLETED
        return bool(self.row["running"] or is_ending or Counts.of(dict(self.row)).done)

    def events(self) -> list[Event]:
        """Every event so far."""
        return log(dict(self.row), self.ended, is_running=self.is_running)


async def create(
    connection: AsyncConnection,
    tenant_id: int,
    project_id: int,
    api_key_id: int,
    *,
    public_id: str,
    line: bytes,
    body: Mapping[str, Any],
    asked: CreateResponse,
) -> None:
    """Make a response in the caller's transaction: its line is stored, and the duty that plans it is woken."""
    file_id = await blobs.store(
        connection, tenant_id, project_id, line, filename=f"{public_id}.jsonl", purpose=INPUT_PURPOSE
    )
    new = NewBatch(
        input_file_id=file_id,
        endpoint=ENDPOINT,
        completion_window=asked.completion_window,
        window=asked.window,
        priority=PRIORITY,
        metadata=asked.metadata,
        output_expires_after_seconds=SHORT_LIFE_SECONDS if asked.store is False else None,
        public_id=public_id,
        response=repeated(body),
    )
    await batches.create(connection, tenant_id, project_id, api_key_id, new)


async def find(connection: AsyncConnection, tenant_id: int, public_id: str) -> Found | None:
    """The response, if the tenant has it and it is still there."""
    where = {"tenant_id": tenant_id, "public_id": public_id}
    row = (await connection.execute(FIND, where)).mappings().first()
    if row is None:
        return None
    state, line = BatchState(row["state"]), None
    if state is BatchState.COMPLETED:
        line = (await connection.execute(LINE, {"tenant_id": tenant_id, "batch_id": row["id"]})).scalar_one_or_none()
        if line is None:
            return None
    return Found(row, ending(state, row["errors"], line))


async def shown(connection: AsyncConnection, found: Found) -> dict[str, Any]:
    """The object of a response; of one that has not ended also why it waits."""
    waiting = await batch_view.waiting(connection, found.row) if found.ended is None else None
    object_ = response_object(dict(found.row), found.ended, is_running=found.is_running, waiting=waiting)
    return with_cost(object_, Counts.of(dict(found.row["counts"] or found.row)))


async def delete(connection: AsyncConnection, tenant_id: int, public_id: str) -> bool:
    """Hide a response for good, and cancel it where it has not ended. False when there is nothing to delete."""
    await batches.stop(connection, tenant_id, public_id)
    gone = await connection.execute(DELETE, {"tenant_id": tenant_id, "public_id": public_id})
    return gone.first() is not None


async def request_line(connection: AsyncConnection, row: RowMapping) -> bytes:
    """The stored line of a response's request; empty where it was purged meanwhile."""
    where = {"tenant_id": row["tenant_id"], "file_id": row["file_id"]}
    return b"".join((await connection.execute(INPUT, where)).scalars())
