"""`/v1/responses`: live ones are passed through to an instance (contract: WIRE 2 and 3)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import live_body
from api.auth import LiveCaller
from slackwater.errors import NotFound

router = APIRouter(prefix="/v1/responses", tags=["responses"])


@router.post("")
async def create(request: Request, caller: LiveCaller) -> Response:
    """A response, streamed or whole."""
    body = await live_body.read(request)
    if body.value.get("background") is True:
        raise NotFound("Responses in the background are not served here.", param="background")
    return await live_body.passed_on(request, caller.tenant_id, body)
