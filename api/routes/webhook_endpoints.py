"""`/v1/webhook_endpoints`, `/v1/webhook_event_types` and `/v1/deliveries` (contract: WIRE 4.1)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from api.auth import Store, allowed
from api.bodies import checked, read_json
from api.routes.webhook_bodies import (
    ChangeEndpoint,
    CreateEndpoint,
    RotateSecret,
    TestEndpoint,
    delivery_object,
    endpoint_object,
)
from slackwater import ids
from slackwater.errors import InvalidRequest, NotFound, SlackwaterError
from slackwater.outbox import EVENT_TYPES, event_body
from slackwater.sealing import Sealer, sealer_from
from slackwater.tenancy.keys import Principal
from slackwater.webhooks import deliveries, endpoints, signing
from slackwater.webhooks.endpoints import Endpoint
from slackwater.webhooks.sender import Attempt, Sender
from slackwater.wire.pages import page

router = APIRouter(prefix="/v1", tags=["webhooks"])
ENDPOINT_ID: Final = re.compile(r"we_[0-9a-f]{32}", re.ASCII)
DELIVERY_ID: Final = re.compile(r"whd_[0-9a-f]{32}", re.ASCII)
PAGE: Final = 20

Manager = Annotated[Principal, Depends(allowed("webhooks:manage"))]
Limit = Annotated[int, Query(ge=1, le=100)]


class Unanswered(SlackwaterError):
    """A test event got no answer (502): the class of the failure is in the code."""

    status = 502
    type = "api_error"


def endpoint_id(webhook_endpoint_id: str, _: Manager) -> str:
    """The id in the path, for a caller who may ask.

    Raises:
        NotFound: it cannot be one.
    """
    if not ENDPOINT_ID.fullmatch(webhook_endpoint_id):
        raise NotFound("No such webhook endpoint.")
    return webhook_endpoint_id


EndpointId = Annotated[str, Depends(endpoint_id)]


def sealer_of(request: Request) -> Sealer:
    return sealer_from(request.app.state.settings)


Seals = Annotated[Sealer, Depends(sealer_of)]


@router.get("/webhook_event_types")
async def event_types(_: Manager) -> dict[str, Any]:
    """What may be subscribed to."""
    return {"object": "list", "data": list(EVENT_TYPES)}


@router.post("/webhook_endpoints")
async def create(request: Request, caller: Manager, database: Store, sealer: Seals) -> dict[str, Any]:
    """Add an endpoint; its signing secret is shown this once."""
    asked = checked(await read_json(request), CreateEndpoint)
    async with database.tenant(caller.tenant_id) as connection:
        created = await endpoints.create(
            connection,
            sealer=sealer,
            settings=request.app.state.settings,
            tenant_id=caller.tenant_id,
            project_id=caller.project_id,
            **asked.model_dump(),
        )
        found = await _found(connection, sealer, caller, created.public_id)
    return endpoint_object(found, created.signing_secret)


@router.get("/webhook_endpoints")
async def listed(
    caller: Manager, database: Store, sealer: Seals, after: str | None = None, limit: Limit = PAGE
) -> dict[str, Any]:
    """The tenant's endpoints, the newest first; those of single batches are not among them."""
    cursor = _cursor(after, ENDPOINT_ID)
    async with database.tenant(caller.tenant_id) as connection:
        try:
            found, more = await endpoints.list_page(
                connection, sealer=sealer, tenant_id=caller.tenant_id, after=cursor, limit=limit
            )
        except NotFound:
            raise _no_cursor() from None
    return page([endpoint_object(one) for one in found], has_more=more)


@router.get("/webhook_endpoints/{webhook_endpoint_id}")
async def retrieve(public_id: EndpointId, caller: Manager, database: Store, sealer: Seals) -> dict[str, Any]:
    async with database.tenant(caller.tenant_id) as connection:
        return endpoint_object(await _found(connection, sealer, caller, public_id))


@router.post("/webhook_endpoints/{webhook_endpoint_id}")
async def change(
    request: Request, public_id: EndpointId, caller: Manager, database: Store, sealer: Seals
) -> dict[str, Any]:
    """Change what is given; it holds for deliveries that wait, too."""
    asked = checked(await read_json(request), ChangeEndpoint)
    async with database.tenant(caller.tenant_id) as connection:
        changed = await endpoints.change(
            connection,
            sealer=sealer,
            settings=request.app.state.settings,
            tenant_id=caller.tenant_id,
            public_id=public_id,
            url=asked.url,
            event_types=asked.event_types,
            name=asked.name,
            enabled=asked.enabled,
        )
    return endpoint_object(changed)


@router.delete("/webhook_endpoints/{webhook_endpoint_id}")
async def remove(public_id: EndpointId, caller: Manager, database: Store) -> dict[str, Any]:
    async with database.tenant(caller.tenant_id) as connection:
        await endpoints.remove(connection, tenant_id=caller.tenant_id, public_id=public_id)
    return {"id": public_id, "object": "webhook_endpoint.deleted", "deleted": True}


@router.post("/webhook_endpoints/{webhook_endpoint_id}/rotate_secret")
async def rotate_secret(
    request: Request, public_id: EndpointId, caller: Manager, database: Store, sealer: Seals
) -> dict[str, Any]:
    """A new signing secret, shown this once. A body is optional."""
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    asked = checked(await read_json(request) if has_body else {}, RotateSecret)
    async with database.tenant(caller.tenant_id) as connection:
        secret = await endpoints.rotate_secret(
            connection, sealer=sealer, tenant_id=caller.tenant_id, public_id=public_id, grace_seconds=asked.grace
        )
        found = await _found(connection, sealer, caller, public_id)
    return endpoint_object(found, secret)


@router.post("/webhook_endpoints/{webhook_endpoint_id}/test")
async def send_test(
    request: Request, public_id: EndpointId, caller: Manager, database: Store, sealer: Seals
) -> dict[str, Any]:
    """Send a signed sample now, by the path that events take. It is not recorded and not tried again."""
    asked = checked(await read_json(request), TestEndpoint)
    if asked.event_type not in EVENT_TYPES:
        raise InvalidRequest("There is no such event type.", code="invalid_event_type", param="event_type")
    async with database.tenant(caller.tenant_id) as connection:
        found = await _found(connection, sealer, caller, public_id)
        secrets = await endpoints.live_secrets(
            connection, sealer=sealer, tenant_id=caller.tenant_id, public_id=public_id
        )
    async with Sender(request.app.state.settings) as sender:
        attempt = await _send_sample(sender, found.url, asked.event_type, secrets)
    if attempt.reply.http is None:
        raise Unanswered("The endpoint gave no answer.", code=attempt.reply.error)
    return {
        "object": "webhook_endpoint.test",
        "webhook_endpoint_id": public_id,
        "event_type": asked.event_type,
        "status_code": attempt.reply.http,
        "success": True,
    }


@router.get("/webhook_endpoints/{webhook_endpoint_id}/deliveries")
async def list_deliveries(
    public_id: EndpointId,
    caller: Manager,
    database: Store,
    sealer: Seals,
    after: str | None = None,
    limit: Limit = PAGE,
) -> dict[str, Any]:
    """What became of the endpoint's events, the newest first, with every attempt."""
    cursor = _cursor(after, DELIVERY_ID)
    async with database.tenant(caller.tenant_id) as connection:
        await _found(connection, sealer, caller, public_id)
        try:
            found, more = await deliveries.list_page(
                connection, tenant_id=caller.tenant_id, endpoint_id=public_id, after=cursor, limit=limit
            )
        except NotFound:
            raise _no_cursor() from None
    return page([delivery_object(one) for one in found], has_more=more)


@router.post("/deliveries/{delivery_id}/retry")
async def retry(delivery_id: str, caller: Manager, database: Store) -> dict[str, Any]:
    """Make a delivery due now: the same id and the same bytes."""
    if not DELIVERY_ID.fullmatch(delivery_id):
        raise NotFound("No such delivery.")
    async with database.tenant(caller.tenant_id) as connection:
        return delivery_object(await deliveries.retry(connection, tenant_id=caller.tenant_id, public_id=delivery_id))


async def _found(connection: AsyncConnection, sealer: Sealer, caller: Principal, public_id: str) -> Endpoint:
    return await endpoints.get(connection, sealer=sealer, tenant_id=caller.tenant_id, public_id=public_id)


async def _send_sample(sender: Sender, url: str, event_type: str, secrets: list[str]) -> Attempt:
    now, event_id = datetime.now(UTC), ids.new("evt_")
    body = event_body(event_id, event_type, int(now.timestamp()), {"id": ids.new("batch_")})
    return await sender.post(url, signing.headers(event_id, body, secrets, now), body)


def _cursor(after: str | None, form: re.Pattern[str]) -> str | None:
    if after is not None and not form.fullmatch(after):
        raise _no_cursor()
    return after


def _no_cursor() -> InvalidRequest:
    return InvalidRequest("There is no such cursor.", code="invalid_value", param="after")
