"""`/v1/batches` (contract: WIRE 1.5 to 1.10 and 8)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, BackgroundTasks, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from api.auth import BatchesReader, BatchesWriter, Store
from api.batch_webhook import attach
from api.bodies import checked, read_json
from slackwater.errors import InvalidRequest, NotFound
from slackwater.settings import Settings
from slackwater.storage import batch_view, batches
from slackwater.storage.batches import Created, NewBatch, body_hash
from slackwater.storage.database import Database
from slackwater.tenancy.keys import Principal
from slackwater.wire.batch_request import CreateBatch
from slackwater.wire.pages import page

router = APIRouter(prefix="/v1/batches", tags=["batches"])
BATCH_ID: Final = re.compile(r"batch_[0-9a-f]{32}", re.ASCII)
IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
REPLAYED: Final = "idempotent-replayed"
RETRY_COUNT: Final = "x-stainless-retry-count"


@router.post("")
async def create(
    request: Request, response: Response, then: BackgroundTasks, caller: BatchesWriter, database: Store
) -> dict[str, Any]:
    """Create a batch. What is wrong inside its file is reported later, on the batch."""
    key = _idempotency_key(request.headers.get("idempotency-key"))
    value = await read_json(request)
    asked = checked(value, CreateBatch)
    async with database.tenant(caller.tenant_id) as connection:
        made = await _made(connection, request, caller, _new(asked), key, body_hash(value))
        extra = await _webhook(connection, request.app.state.settings, caller, made.batch_id, asked)
        shown = await _shown(connection, caller.tenant_id, made.public_id)
    if made.is_replay:
        response.headers[REPLAYED] = "true"
    if key is None and not await request.is_disconnected():
        then.add_task(_answered, database, caller.tenant_id, made.public_id)
    return shown | extra


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


async def _made(
    connection: AsyncConnection, request: Request, caller: Principal, new: NewBatch, key: str | None, digest: bytes
) -> Created:
    place = (caller.tenant_id, caller.project_id, caller.key_id)
    if key is not None:
        keyed = replace(new, idempotency_key=key, idempotency_hash=digest)
        return await batches.create(connection, *place, keyed)
    is_resend = request.headers.get(RETRY_COUNT, "0") not in ("", "0")
    return await batches.create_without_key(connection, *place, new, digest, is_resend=is_resend)


async def _answered(database: Database, tenant_id: int, public_id: str) -> None:
    async with database.tenant(tenant_id) as connection:
        await batches.answered(connection, tenant_id, public_id)


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
    connection: AsyncConnection, settings: Settings, caller: Principal, batch_id: int | None, asked: CreateBatch
) -> dict[str, Any]:
    """A replay shows no secret: it was shown once."""
    if asked.webhook is None or batch_id is None:
        return {}
    return {"webhook": await attach(connection, settings, caller, batch_id, asked.webhook.url)}


async def _shown(connection: AsyncConnection, tenant_id: int, public_id: str) -> dict[str, Any]:
    row = await batch_view.find(connection, tenant_id, public_id)
    if row is None:
        raise _missing()
    return (await batch_view.objects(connection, [row]))[0]


def _idempotency_key(header: str | None) -> str | None:
    if header is not None and not IDEMPOTENCY_KEY.fullmatch(header):
        raise InvalidRequest(
            "An Idempotency-Key has 1 to 255 visible ASCII characters.",
            code="invalid_value",
            param="idempotency-key",
        )
    return header


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
