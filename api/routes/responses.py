"""`/v1/responses`: live ones are passed through to an instance, those in the background are kept (contract: WIRE 2, 3 and 8)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api import background, idempotency, live_body
from api.auth import BatchesReader, BatchesWriter, ResponsesWriter, Store, demand
from api.live_body import LiveBody
from api.response_lookup import found, known_id, missing
from api.response_stream import stream_of
from slackwater.errors import InvalidRequest
from slackwater.reader.body_rules import wrong_type
from slackwater.storage import batches, responses
from slackwater.wire.pages import page
from slackwater.wire.response import deleted_response
from slackwater.wire.response_request import input_items

router = APIRouter(prefix="/v1/responses", tags=["responses"])
MOST_EVENTS = 1 << 53


@router.post("", response_model=dict[str, Any])
async def create(request: Request, caller: ResponsesWriter, database: Store) -> Response:
    """A response, streamed or whole. With `background: true` it is queued as batch work is, and kept to be polled or streamed."""
    idempotency.key_of(request)
    body = await live_body.read(request)
    if _is_background(body):
        demand(caller, "batches:write")
        return await background.created(request, database, caller, body)
    demand(caller, "live:write")
    return await live_body.passed_on(request, caller.tenant_id, body)


@router.get("/{response_id}", response_model=dict[str, Any])
async def retrieve(
    response_id: str,
    request: Request,
    caller: BatchesReader,
    database: Store,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0, lt=MOST_EVENTS)] = None,
) -> Any:
    """One response in the background, or with `stream` its events: all of them, or those after number `starting_after`."""
    async with database.tenant(caller.tenant_id) as connection:
        there = await found(connection, caller.tenant_id, response_id)
        if not stream:
            return await responses.shown(connection, there)
    after = -1 if starting_after is None else starting_after
    return stream_of(request, database, caller.tenant_id, response_id, after)


@router.post("/{response_id}/cancel")
async def cancel(response_id: str, caller: BatchesWriter, database: Store) -> dict[str, Any]:
    """Cancel a response that has not ended; one that has is returned as it is. A body is not read."""
    async with database.tenant(caller.tenant_id) as connection:
        await found(connection, caller.tenant_id, response_id)
        await batches.stop(connection, caller.tenant_id, response_id)
        return await responses.shown(connection, await found(connection, caller.tenant_id, response_id))


@router.delete("/{response_id}")
async def delete(response_id: str, caller: BatchesWriter, database: Store) -> dict[str, Any]:
    """Delete a response; one that has not ended is cancelled."""
    async with database.tenant(caller.tenant_id) as connection:
        if not await responses.delete(connection, caller.tenant_id, known_id(response_id)):
            raise missing()
    return deleted_response(response_id)


@router.get("/{response_id}/input_items")
async def list_input_items(
    response_id: str,
    caller: BatchesReader,
    database: Store,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> dict[str, Any]:
    """What a response was asked, item by item, the last one first."""
    async with database.tenant(caller.tenant_id) as connection:
        row = (await found(connection, caller.tenant_id, response_id)).row
        line = await responses.request_line(connection, row)
    items = input_items(line, row["id"])
    if order == "desc":
        items.reverse()
    names = [item["id"] for item in items]
    if after is not None and after not in names:
        raise InvalidRequest("There is no such cursor.", code="invalid_value", param="after")
    start = 0 if after is None else names.index(after) + 1
    return page(items[start : start + limit], has_more=start + limit < len(items))


def _is_background(body: LiveBody) -> bool:
    asked = body.value.get("background")
    if asked is None or isinstance(asked, bool):
        return asked is True
    refusal = wrong_type("background", "a boolean", asked)
    raise InvalidRequest(refusal.message, param=refusal.param, code=refusal.code)
