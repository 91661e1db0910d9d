"""`/v1/batches/{batch_id}/retry`: what did not succeed, in a new batch (contract: WIRE 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, Request
from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from api import idempotency
from api.auth import BatchesWriter, Store
from api.batch_lookup import found, shown
from api.bodies import checked, read_optional_json
from slackwater.errors import Unavailable
from slackwater.storage import batch_retry, batches
from slackwater.storage.batches import NewBatch
from slackwater.storage.blobs import Purged, Upload
from slackwater.storage.database import Database
from slackwater.storage.idempotency import Create, Known, earlier, hash_of, remember
from slackwater.tenancy.keys import Principal
from slackwater.wire.batch_request import RetryBatch, window_of
from slackwater.wire.files import life_of

router = APIRouter(prefix="/v1/batches", tags=["batches"])
ROUTE: Final = "batches.retry"


@router.post("/{batch_id}/retry", response_model=dict[str, Any])
async def retry(batch_id: str, request: Request, caller: BatchesWriter, database: Store) -> Response:
    """Run what failed, expired or was cancelled once more, as a new batch whose `retry_of` names this one, which stays as it is.

    Window, priority and metadata are those of this batch unless the body says otherwise, as are its order of output and what
    its events carry; the window begins anew. A `webhook` of the batch's own stays with it.
    """
    value = await read_optional_json(request)
    asked = checked(value, RetryBatch)
    same = idempotency.create_of(request, caller, ROUTE, hash_of([batch_id, value]))
    async with database.tenant(caller.tenant_id) as connection:
        old = await found(connection, caller.tenant_id, batch_id)
        known = await earlier(connection, same)
        object_ = None if known is None else await shown(connection, caller.tenant_id, known.object_id)
        wanted = await batch_retry.wanted(connection, old) if known is None else None
    if known is not None and object_ is not None:
        return idempotency.CreateReply(object_, database, same, known, is_replay=True)
    assert wanted is not None
    async with _cut(request, database, caller, wanted) as upload, database.tenant(caller.tenant_id) as connection:
        before = await earlier(connection, same)
        known = before or await _make(connection, caller, same, upload, old, asked)
        object_ = await shown(connection, caller.tenant_id, known.object_id)
    return idempotency.CreateReply(object_, database, same, known, is_replay=before is not None)


@asynccontextmanager
async def _cut(
    request: Request, database: Database, caller: Principal, wanted: tuple[RowMapping, frozenset[int]]
) -> AsyncIterator[Upload]:
    """The lines as a stored file that nobody sees yet; gone after the block unless it was made visible."""
    settings = request.app.state.settings
    file, lines = wanted
    upload = Upload(database, caller.tenant_id, caller.project_id, file["bytes"] + 1)
    try:
        await upload.open()
        async for data in batch_retry.cut(database, caller.tenant_id, file, lines, settings.max_line_bytes):
            await upload.write(data)
        await upload.flush()
        yield upload
    except Purged:
        raise Unavailable("The lines were not stored; try again.") from None
    finally:
        await asyncio.shield(upload.discard())


async def _make(
    connection: AsyncConnection, caller: Principal, same: Create, upload: Upload, old: RowMapping, asked: RetryBatch
) -> Known:
    life = life_of("batch", None)
    row = await upload.finish(connection, filename=f"{old['public_id']}_retry.jsonl", purpose="batch", life=life)
    new = _new(old, asked, str(row["public_id"]))
    made = await batches.create(connection, caller.tenant_id, caller.project_id, caller.key_id, new)
    return await remember(connection, same, made.public_id)


def _new(old: RowMapping, asked: RetryBatch, input_file_id: str) -> NewBatch:
    text = asked.completion_window or old["completion_window"]
    window = window_of(text)
    assert window is not None
    return NewBatch(
        input_file_id=input_file_id,
        endpoint=old["endpoint"],
        completion_window=text,
        window=window,
        priority=old["priority"] if asked.priority is None else asked.priority,
        on_invalid=old["on_invalid"],
        metadata=old["metadata"] if asked.metadata is None else asked.metadata,
        output_expires_after_seconds=old["output_expires_after_seconds"],
        retry_of=old["public_id"],
        output_order=old["output_order"],
        webhook_metadata=old["webhook_metadata"],
    )
