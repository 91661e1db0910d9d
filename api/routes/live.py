"""Live requests: `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, passed through to an instance."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.auth import LiveCaller
from api.bodies import pieces, refuse_encoding
from api.gateway.directory import Directory
from api.gateway.passing import Passing
from slackwater.errors import InvalidRequest, TooLarge
from slackwater.reader import strict_json
from slackwater.settings import Settings

router = APIRouter(prefix="/v1", tags=["live"])


@router.post("/chat/completions")
async def chat(request: Request, caller: LiveCaller) -> Response:
    """A chat completion, streamed or whole."""
    return await _passed(request, caller.tenant_id)


@router.post("/completions")
async def complete(request: Request, caller: LiveCaller) -> Response:
    """A text completion, streamed or whole."""
    return await _passed(request, caller.tenant_id)


@router.post("/embeddings")
async def embed(request: Request, caller: LiveCaller) -> Response:
    """Embeddings."""
    return await _passed(request, caller.tenant_id)


async def _passed(request: Request, tenant_id: int) -> Response:
    body = await _body(request)
    value = strict_json.parse(body)
    model = _model(value)
    directory: Directory = request.app.state.directory
    passing: Passing = request.app.state.passing
    upstreams = await directory.serving(tenant_id, model)
    is_stream = value.get("stream") is True
    return await passing.send(upstreams, request.url.path, body, model=model, is_stream=is_stream)


async def _body(request: Request) -> bytes:
    refuse_encoding(request)
    settings: Settings = request.app.state.settings
    body = bytearray()
    async for piece in pieces(request, settings.upload_idle_seconds):
        body += piece
        if len(body) > settings.max_line_bytes:
            raise TooLarge(f"The body is too large: at most {settings.max_line_bytes} bytes are accepted.")
    return bytes(body)


def _model(value: Any) -> str:
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_type")
    model = value.get("model")
    if not isinstance(model, str) or not model or "\0" in model:
        raise InvalidRequest("You must provide a model parameter.", param="model", code="invalid_value")
    return model
