"""Batches as a tenant creates, reads and cancels them. When work runs is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import bindparam

from slackwater import ids
from slackwater.errors import Conflict, NotFound
from slackwater.lifecycle import BatchState, Side
from slackwater.storage.batch_view import find
from slackwater.wire.files import OUTPUT_PURPOSE

INPUT = text("""
SELECT id FROM file
 WHERE tenant_id = :tenant_id AND public_id = :public_id AND is_complete AND batch_id IS NULL AND deleted_at IS NULL
   AND (expires_at IS NULL OR expires_at > now())
   FOR SHARE
""")
INSERT = text("""
INSERT INTO batch (tenant_id, public_id, project_id, api_key_id, endpoint, input_file_id, file_id, output_file_id, error_file_id,
                   completion_window, expires_at, priority, on_invalid, output_expires_after_seconds, metadata, retry_of,
                   output_order, webhook_metadata, response)
VALUES (:tenant_id, :public_id, :project_id, :api_key_id, :endpoint, :input_file_id, :file_id, :output_file_id, :error_file_id,
        :completion_window, now() + CAST(:window AS interval), :priority, :on_invalid, :output_expires_after_seconds, :metadata,
        :retry_of, :output_order, :webhook_metadata, :response)
RETURNING id
""").bindparams(
    bindparam("metadata", type_=JSON(none_as_null=True)),
    bindparam("webhook_metadata", type_=JSON(none_as_null=True)),
    bindparam("response", type_=JSON(none_as_null=True)),
)
INSERT_FILE = text("""
INSERT INTO file (tenant_id, project_id, public_id, filename, purpose, is_complete, batch_id, side)
VALUES (:tenant_id, :project_id, :public_id, :filename, :purpose, true, :batch_id, :side)
""")
NOTIFY = text("SELECT pg_notify('slackwater', :what)")
# Guarantees: a cancel wins or loses against every duty on the row itself; a batch that is ending is not touched.
CANCEL = text("""
UPDATE batch SET state = :cancelling, cancelling_at = now()
 WHERE tenant_id = :tenant_id AND public_id = :public_id AND state IN (:validating, :in_progress)
RETURNING id
""")


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a client asked for, checked. `response` is set where it is no batch but a response, with an id of that kind; it has no files."""

    input_file_id: str
    endpoint: str
    completion_window: str
    window: timedelta
    priority: int = 0
    on_invalid: str = "fail"
    metadata: Mapping[str, str] | None = None
    output_expires_after_seconds: int | None = None
    retry_of: str | None = None
    output_order: str = "input"
    webhook_metadata: Mapping[str, str] | None = None
    public_id: str | None = None
    response: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A batch that was made now."""

    public_id: str
    batch_id: int


async def create(
    connection: AsyncConnection, tenant_id: int, project_id: int, api_key_id: int | None, new: NewBatch
) -> Created:
    """Make a batch and its two files, and wake the duty that checks it; all of it in the caller's transaction.

    An input file that the tenant does not have makes a batch that will fail.
    """
    values = _values(tenant_id, project_id, api_key_id, new)
    where = {"tenant_id": tenant_id, "public_id": new.input_file_id}
    values["file_id"] = (await connection.execute(INPUT, where)).scalar_one_or_none()
    batch_id: int = (await connection.execute(INSERT, values)).scalar_one()
    if new.response is None:
        await connection.execute(INSERT_FILE, _files(values, batch_id))
    await connection.execute(NOTIFY, {"what": "validate"})
    return Created(values["public_id"], batch_id)


def _values(tenant_id: int, project_id: int, api_key_id: int | None, new: NewBatch) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "project_id": project_id,
        "api_key_id": api_key_id,
        "public_id": new.public_id or ids.new("batch_"),
        "output_file_id": ids.new("file-"),
        "error_file_id": ids.new("file-"),
        "endpoint": new.endpoint,
        "input_file_id": new.input_file_id,
        "completion_window": new.completion_window,
        "window": new.window,
        "priority": new.priority,
        "on_invalid": new.on_invalid,
        "metadata": None if new.metadata is None else dict(new.metadata),
        "output_expires_after_seconds": new.output_expires_after_seconds,
        "retry_of": new.retry_of,
        "output_order": new.output_order,
        "webhook_metadata": None if new.webhook_metadata is None else dict(new.webhook_metadata),
        "response": None if new.response is None else dict(new.response),
    }


def _files(values: Mapping[str, Any], batch_id: int) -> Sequence[dict[str, Any]]:
    shared = {
        "tenant_id": values["tenant_id"],
        "project_id": values["project_id"],
        "purpose": OUTPUT_PURPOSE,
        "batch_id": batch_id,
    }
    return [
        shared
        | {
            "side": int(side),
            "public_id": values[f"{side.name.lower()}_file_id"],
            "filename": f"{values['public_id']}_{side.name.lower()}.jsonl",
        }
        for side in Side
    ]


async def cancel(connection: AsyncConnection, tenant_id: int, public_id: str) -> RowMapping:
    """Ask for a batch to be cancelled; asking again is the same. Returns the batch as it is now.

    Raises:
        NotFound: the tenant has no such batch.
        Conflict: it ended otherwise, or all its lines are done and it is about to.
    """
    await stop(connection, tenant_id, public_id)
    row = await find(connection, tenant_id, public_id)
    if row is None:
        raise NotFound("No batch found with that id.")
    state = BatchState(row["state"])
    if state not in (BatchState.CANCELLING, BatchState.CANCELLED):
        raise Conflict(f"Cannot cancel a batch with status '{state.word}'.")
    return row


async def stop(connection: AsyncConnection, tenant_id: int, public_id: str) -> None:
    """Let a batch that waits or runs end as cancelled; any other stays as it is."""
    values = {
        "tenant_id": tenant_id,
        "public_id": public_id,
        "cancelling": int(BatchState.CANCELLING),
        "validating": int(BatchState.VALIDATING),
        "in_progress": int(BatchState.IN_PROGRESS),
    }
    if (await connection.execute(CANCEL, values)).first() is not None:
        await connection.execute(NOTIFY, {"what": "settle"})
