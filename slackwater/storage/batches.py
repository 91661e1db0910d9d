"""Batches as a tenant creates, reads and cancels them. When work runs is decided elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
# Guarantees: of any number of creates with one key, one makes a batch. The others wait for its commit and get no row.
INSERT = text("""
INSERT INTO batch (tenant_id, public_id, project_id, api_key_id, endpoint, input_file_id, file_id, output_file_id, error_file_id,
                   completion_window, expires_at, priority, on_invalid, output_expires_after_seconds, metadata,
                   idempotency_key, idempotency_hash)
VALUES (:tenant_id, :public_id, :project_id, :api_key_id, :endpoint, :input_file_id, :file_id, :output_file_id, :error_file_id,
        :completion_window, now() + CAST(:window AS interval), :priority, :on_invalid, :output_expires_after_seconds, :metadata,
        :idempotency_key, :idempotency_hash)
ON CONFLICT (tenant_id, idempotency_key) DO NOTHING
RETURNING id
""").bindparams(bindparam("metadata", type_=JSON(none_as_null=True)))
INSERT_FILE = text("""
INSERT INTO file (tenant_id, project_id, public_id, filename, purpose, is_complete, batch_id, side)
VALUES (:tenant_id, :project_id, :public_id, :filename, :purpose, true, :batch_id, :side)
""")
NOTIFY = text("SELECT pg_notify('slackwater', :what)")
BY_KEY = text("""
SELECT public_id, idempotency_hash FROM batch WHERE tenant_id = :tenant_id AND idempotency_key = :idempotency_key
""")
# Guarantees: finds only a create whose reply was never written whole, and none that is older than a client's retries.
UNANSWERED = text("""
SELECT public_id FROM batch
 WHERE tenant_id = :tenant_id AND idempotency_key = :idempotency_key AND created_at > now() - interval '10 min'
""")
ANSWERED = text("""
UPDATE batch SET idempotency_key = NULL, idempotency_hash = NULL
 WHERE tenant_id = :tenant_id AND public_id = :public_id AND idempotency_key LIKE 'unanswered %'
""")
# Guarantees: a cancel wins or loses against every duty on the row itself; a batch that is ending is not touched.
CANCEL = text("""
UPDATE batch SET state = :cancelling, cancelling_at = now()
 WHERE tenant_id = :tenant_id AND public_id = :public_id AND state IN (:validating, :in_progress)
RETURNING id
""")


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a client asked for, checked."""

    input_file_id: str
    endpoint: str
    completion_window: str
    window: timedelta
    priority: int = 0
    on_invalid: str = "fail"
    metadata: Mapping[str, str] | None = None
    output_expires_after_seconds: int | None = None
    idempotency_key: str | None = None
    idempotency_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A batch that was made now, or one that an earlier create with the same key made."""

    public_id: str
    batch_id: int | None

    @property
    def is_replay(self) -> bool:
        return self.batch_id is None


def body_hash(value: Any) -> bytes:
    """sha256 of the canonical JSON of a parsed body: the order of keys and blanks do not count."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).digest()


async def create(
    connection: AsyncConnection, tenant_id: int, project_id: int, api_key_id: int | None, new: NewBatch
) -> Created:
    """Make a batch and its two files, and wake the duty that checks it; all of it in the caller's transaction.

    An input file that the tenant does not have makes a batch that will fail.

    Raises:
        Conflict: the idempotency key was used for another body.
    """
    values = _values(tenant_id, project_id, api_key_id, new)
    where = {"tenant_id": tenant_id, "public_id": new.input_file_id}
    values["file_id"] = (await connection.execute(INPUT, where)).scalar_one_or_none()
    batch_id = (await connection.execute(INSERT, values)).scalar_one_or_none()
    if batch_id is None:
        return await _replay(connection, tenant_id, new)
    await connection.execute(INSERT_FILE, _files(values, batch_id))
    await connection.execute(NOTIFY, {"what": "validate"})
    return Created(values["public_id"], batch_id)


async def create_without_key(
    connection: AsyncConnection,
    tenant_id: int,
    project_id: int,
    api_key_id: int,
    new: NewBatch,
    digest: bytes,
    *,
    is_resend: bool,
) -> Created:
    """As `create`, for a client that sends no idempotency key but says that it sends again.

    Until `answered` is called, the batch is known by its body's hash and its API key. A re-send finds it; a first send does not.
    """
    key = f"unanswered {api_key_id} {digest.hex()}"
    marked = replace(new, idempotency_key=key, idempotency_hash=digest)
    made = await create(connection, tenant_id, project_id, api_key_id, marked)
    if not made.is_replay:
        return made
    values = {"tenant_id": tenant_id, "idempotency_key": key}
    if is_resend and (await connection.execute(UNANSWERED, values)).first() is not None:
        return made
    return await create(connection, tenant_id, project_id, api_key_id, new)


async def answered(connection: AsyncConnection, tenant_id: int, public_id: str) -> None:
    """The reply to the create was written: a later create of the same body is another batch."""
    await connection.execute(ANSWERED, {"tenant_id": tenant_id, "public_id": public_id})


def _values(tenant_id: int, project_id: int, api_key_id: int | None, new: NewBatch) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "project_id": project_id,
        "api_key_id": api_key_id,
        "public_id": ids.new("batch_"),
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
        "idempotency_key": new.idempotency_key,
        "idempotency_hash": new.idempotency_hash,
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


async def _replay(connection: AsyncConnection, tenant_id: int, new: NewBatch) -> Created:
    values = {"tenant_id": tenant_id, "idempotency_key": new.idempotency_key}
    row = (await connection.execute(BY_KEY, values)).one()
    if row.idempotency_hash != new.idempotency_hash:
        raise Conflict("This Idempotency-Key was used for a different request.", code="idempotency_key_reused")
    return Created(row.public_id, None)


async def cancel(connection: AsyncConnection, tenant_id: int, public_id: str) -> RowMapping:
    """Ask for a batch to be cancelled; asking again is the same. Returns the batch as it is now.

    Raises:
        NotFound: the tenant has no such batch.
        Conflict: it ended otherwise, or all its lines are done and it is about to.
    """
    values = {
        "tenant_id": tenant_id,
        "public_id": public_id,
        "cancelling": int(BatchState.CANCELLING),
        "validating": int(BatchState.VALIDATING),
        "in_progress": int(BatchState.IN_PROGRESS),
    }
    if (await connection.execute(CANCEL, values)).first() is not None:
        await connection.execute(NOTIFY, {"what": "settle"})
    row = await find(connection, tenant_id, public_id)
    if row is None:
        raise NotFound("No batch found with that id.")
    state = BatchState(row["state"])
    if state not in (BatchState.CANCELLING, BatchState.CANCELLED):
        raise Conflict(f"Cannot cancel a batch with status '{state.word}'.")
    return row
