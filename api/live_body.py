"""The body of a live request: read once, its bytes kept as they are, and passed on to an instance that serves its model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from starlette.responses import Response

from api.bodies import pieces, refuse_encoding
from api.gateway.directory import Directory
from api.gateway.passing import Passing
from slackwater.errors import InvalidRequest, TooLarge
from slackwater.reader import strict_json
from slackwater.settings import Settings


@dataclass(frozen=True, slots=True)
class LiveBody:
    """What arrived: the bytes, and the object they are."""

    data: bytes = field(repr=False)
    value: dict[str, Any] = field(repr=False)

    @property
    def model(self) -> str:
        """The model that is asked for.

        Raises:
            InvalidRequest: none is named.
        """
        model = self.value.get("model")
        if not isinstance(model, str) or not model or "\0" in model:
            raise InvalidRequest("You must provide a model parameter.", param="model", code="invalid_value")
        return model

    @property
    def is_stream(self) -> bool:
        return self.value.get("stream") is True


async def read(request: Request) -> LiveBody:
    """The body of a live request.

    Raises:
        UnsupportedMedia: it is compressed.
        TooLarge: it is longer than a line of a batch may be.
        InvalidJson: it is not JSON in UTF-8.
        InvalidRequest: it is no object.
    """
    refuse_encoding(request)
    settings: Settings = request.app.state.settings
    body = bytearray()
    async for piece in pieces(request, settings.upload_idle_seconds):
        body += piece
        if len(body) > settings.max_line_bytes:
            raise TooLarge(f"The body is too large: at most {settings.max_line_bytes} bytes are accepted.")
    value = strict_json.parse(bytes(body))
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_type")
    return LiveBody(bytes(body), value)


async def passed_on(request: Request, tenant_id: int, body: LiveBody) -> Response:
    """What an instance that serves the model answers, streamed or whole.

    Raises:
        NotFound: no such model for this tenant.
        Unavailable: no instance with an address serves it, or none answers.
        BadUpstream: the one that answered broke its answer off.
    """
    directory: Directory = request.app.state.directory
    passing: Passing = request.app.state.passing
    model = body.model
    upstreams = await directory.serving(tenant_id, model)
    return await passing.send(upstreams, request.url.path, body.data, model=model, is_stream=body.is_stream)
