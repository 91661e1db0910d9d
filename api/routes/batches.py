"""`/v1/batches` (contract: WIRE 1.5 to 1.10 and 8)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from api import idempotency
from api.auth import BatchesReader, BatchesWriter, Store
from api.batch_webhook import attach
from api.bodies import checked, read_json
from slackwater.errors import InvalidRequest, NotFound
from slackwater.settings import Settings
from slackwater.storage import batch_view, batches
from slackwater.storage.batches import NewBatch
from slackwater.storage.idempotency import earlier, hash_of, remember
from slackwater.tenancy.keys import Principal
from slackwater.wire.batch_request import CreateBatch
from slackwater.wire.pages import page

router = APIRouter(prefix="/v1/batches", tags=["batches"])
BATCH_ID: Final = re.compile(r"batch_[0-9a-f]{32}", re.ASCII)


@router.post("", response_model=dict[str, Any])
async def create(request: Request, caller: BatchesWriter, database: Store) -> Response:
    """Create a batch. What is wrong inside its file is reported later, on the batch."""
    idempotency.key_of(request)
    value = await read_json(request)
    asked = checked(value, CreateBatch)
    same = idempotency.create_of(request, caller, "batches", hash_of(value))
    async with database.tenant(caller.tenant_id) as connection:
        before, extra = await earlier(connection, same), {}
        if before is None:
            made = await batches.create(connection, caller.tenant_id, caller.project_id, caller.key_id, _new(asked))
            extra = await _webhook(connection, request.app.state.settings, caller, made.batch_id, asked)
        known = before or await remember(connection, same, made.public_id)
        shown = await _shown(connection, caller.tenant_id, known.object_id)
    return idempotency.CreateReply(shown | extra, database, same, known, is_replay=before is not None)


@router.get("")
async def listed(
    caller: BatchesReader,
    database: Store,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    """The tenant's batches, the newest first."""
    async with database.tenant(caller.tenant_id) as connection:
        cursor = await _cursor(connection, caller.tenant_id, after)
        rows, has_more = await batch_view.listed(connection, caller.tenant_id, limit, cursor)
        return page(await batch_view.objects(connection, rows), has_more=has_more)


@router.get("/{batch_id}")
async def retrieve(batch_id: str, caller: BatchesReader, database: Store) -> dict[str, Any]:
    """One batch with its live counts, and why it waits."""
    async with database.tenant(caller.tenant_id) as connection:
        return await _shown(connection, caller.tenant_id, _known_id(batch_id))


@router.post("/{batch_id}/cancel")
async def cancel(batch_id: str, caller: BatchesWriter, database: Store) -> dict[str, Any]:
    """Cancel a batch: what is done stays, the rest is not run. A body is not read."""
    async with database.tenant(caller.tenant_id) as connection:
        row = await batches.cancel(connection, caller.tenant_id, _known_id(batch_id))
        return (await batch_view.objects(connection, [row]))[0]


def _new(asked: CreateBatch) -> NewBatch:
    expiry = asked.output_expires_after
    return NewBatch(
        input_file_id=asked.input_file_id,
        endpoint=asked.endpoint,
        completion_window=asked.completion_window,
        window=asked.window,
        priority=asked.priority,
        on_invalid=asked.on_invalid,
        metadata=asked.metadata,
        output_expires_after_seconds=None if expiry is None else expiry.seconds,
    )


async def _webhook(
    connection: AsyncConnection, settings: Settings, caller: Principal, batch_id: int, asked: CreateBatch
) -> dict[str, Any]:
    if asked.webhook is None:
        return {}
    return {"webhook": await attach(connection, settings, caller, batch_id, asked.webhook.url)}


async def _shown(connection: AsyncConnection, tenant_id: int, public_id: str) -> dict[str, Any]:
    row = await batch_view.find(connection, tenant_id, public_id)
    if row is None:
        raise _missing()
    return (await batch_view.objects(connection, [row]))[0]


def _missing() -> NotFound:
    return NotFound("No batch found with that id.")


def _known_id(batch_id: str) -> str:
    if not BATCH_ID.fullmatch(batch_id):
        raise _missing()
    return batch_id


async def _cursor(connection: AsyncConnection, tenant_id: int, after: str | None) -> int | None:
    if after is None:
        return None
    cursor = await batch_view.cursor_of(connection, tenant_id, after) if BATCH_ID.fullmatch(after) else None
    if cursor is None:
        raise InvalidRequest("There is no such cursor.", code="invalid_value", param="after")
    return cursor
