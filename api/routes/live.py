"""Live requests: `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, passed through to an instance."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import live_body
from api.auth import LiveCaller

router = APIRouter(prefix="/v1", tags=["live"])


@router.post("/chat/completions")
async def chat(request: Request, caller: LiveCaller) -> Response:
    """A chat completion, streamed or whole."""
    return await live_body.passed_on(request, caller.tenant_id, await live_body.read(request))


@router.post("/completions")
async def complete(request: Request, caller: LiveCaller) -> Response:
    """A text completion, streamed or whole."""
    return await live_body.passed_on(request, caller.tenant_id, await live_body.read(request))


@router.post("/embeddings")
async def embed(request: Request, caller: LiveCaller) -> Response:
    """Embeddings."""
    return await live_body.passed_on(request, caller.tenant_id, await live_body.read(request))
