"""`/v1/batches` (contract: WIRE 1.5 to 1.10 and 8)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from api import idempotency
from api.auth import BatchesReader, BatchesWriter, Store
from api.batch_input import incoming, one_input
from api.batch_lookup import cursor, known_id, shown
from api.batch_webhook import attach, shown_again
from api.bodies import checked, read_json
from slackwater.lifecycle import BatchState
from slackwater.settings import Settings
from slackwater.storage import batch_changes, batch_view, batches
from slackwater.storage.batch_view import Listing
from slackwater.storage.batches import Created, NewBatch
from slackwater.storage.idempotency import Known, earlier, remember
from slackwater.tenancy.keys import Principal
from slackwater.wire.batch_request import ChangeBatch, CreateBatch, Status, metadata_of
from slackwater.wire.pages import page

router = APIRouter(prefix="/v1/batches", tags=["batches"])


@router.post("", response_model=dict[str, Any])
async def create(request: Request, caller: BatchesWriter, database: Store) -> Response:
    """Create a batch over a file, or over `requests` in the body. What is wrong inside of them is reported later, on the batch."""
    idempotency.key_of(request)
    async with incoming(request, database, caller) as body:
        asked = checked(body.value, CreateBatch)
        one_input(asked)
        same = idempotency.create_of(request, caller, "batches", body.digest)
        async with database.tenant(caller.tenant_id) as connection:
            before = await earlier(connection, same)
            if before is None:
                file_id = await body.keep(connection) if body.is_inline else asked.input_file_id
                new = _new(asked, file_id)
                made = await batches.create(connection, caller.tenant_id, caller.project_id, caller.key_id, new)
                known = await remember(connection, same, made.public_id)
            else:
                made, known = None, before
            object_ = await shown(connection, caller.tenant_id, known.object_id)
            object_ |= await _webhook(connection, request.app.state.settings, caller, made, known, asked)
    return idempotency.CreateReply(object_, database, same, known, is_replay=before is not None)


@router.get("")
async def listed(
    request: Request,
    caller: BatchesReader,
    database: Store,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    status: Status | None = None,
) -> dict[str, Any]:
    """The tenant's batches, the newest first; `status` and any number of `metadata[key]=value` leave others out."""
    state = None if status is None else BatchState[status.upper()]
    wanted = metadata_of(request.query_params.multi_items())
    async with database.tenant(caller.tenant_id) as connection:
        place = await cursor(connection, caller.tenant_id, after)
        rows, has_more = await batch_view.listed(connection, caller.tenant_id, Listing(limit, place, state, wanted))
        return page(await batch_view.objects(connection, rows), has_more=has_more)


@router.get("/{batch_id}")
async def retrieve(batch_id: str, caller: BatchesReader, database: Store) -> dict[str, Any]:
    """One batch with its live counts, and why it waits."""
    async with database.tenant(caller.tenant_id) as connection:
        return await shown(connection, caller.tenant_id, known_id(batch_id))


@router.patch("/{batch_id}")
async def change(batch_id: str, request: Request, caller: BatchesWriter, database: Store) -> dict[str, Any]:
    """Change the priority or the window of a batch that has not ended."""
    asked = checked(await read_json(request), ChangeBatch)
    async with database.tenant(caller.tenant_id) as connection:
        await batch_changes.change(
            connection,
            caller.tenant_id,
            known_id(batch_id),
            priority=asked.priority,
            completion_window=asked.completion_window,
            window=asked.window,
        )
        return await shown(connection, caller.tenant_id, batch_id)


@router.post("/{batch_id}/cancel")
async def cancel(batch_id: str, caller: BatchesWriter, database: Store) -> dict[str, Any]:
    """Cancel a batch: what is done stays, the rest is not run. A body is not read."""
    async with database.tenant(caller.tenant_id) as connection:
        row = await batches.cancel(connection, caller.tenant_id, known_id(batch_id))
        return (await batch_view.objects(connection, [row]))[0]


def _new(asked: CreateBatch, input_file_id: str) -> NewBatch:
    expiry = asked.output_expires_after
    return NewBatch(
        input_file_id=input_file_id,
        endpoint=asked.endpoint,
        completion_window=asked.completion_window,
        window=asked.window,
        priority=asked.priority,
        on_invalid=asked.on_invalid,
        metadata=asked.metadata,
        output_expires_after_seconds=None if expiry is None else expiry.seconds,
        output_order=asked.output_order,
        webhook_metadata=asked.webhook_metadata,
    )


async def _webhook(
    connection: AsyncConnection,
    settings: Settings,
    caller: Principal,
    made: Created | None,
    known: Known,
    asked: CreateBatch,
) -> dict[str, Any]:
    if asked.webhook is None:
        return {}
    if made is None:
        return {"webhook": await shown_again(connection, settings, caller, known)}
    return {"webhook": await attach(connection, settings, caller, made.batch_id, asked.webhook.url)}
