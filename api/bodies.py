"""Reading what a client sends: bounded in size and time, and strictly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Request
from pydantic import ValidationError

from slackwater.errors import InvalidRequest, RequestTimeout, TooLarge, UnsupportedMedia
from slackwater.reader import strict_json
from slackwater.wire.batch_request import Body
from slackwater.wire.invalid import invalid_request

SLOWEST_BYTES_PER_SECOND: Final = 1024
Model = TypeVar("Model", bound=Body)


@dataclass
class Pace:
    """Whether a client sends fast enough: at least 1 KiB a second, over any `idle_seconds` that were spent waiting for it."""

    idle_seconds: float
    waited: float = 0.0
    received: int = 0

    def is_too_slow(self, waited: float, received: int) -> bool:
        self.waited += waited
        self.received += received
        if self.waited < self.idle_seconds:
            return False
        slow = self.received < SLOWEST_BYTES_PER_SECOND * self.idle_seconds
        self.waited, self.received = 0.0, 0
        return slow


def refuse_encoding(request: Request) -> None:
    """A body is read as it is.

    Raises:
        UnsupportedMedia: it is compressed.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise UnsupportedMedia("A compressed body is not accepted.", param="content-encoding")


async def pieces(request: Request, idle_seconds: float) -> AsyncIterator[bytes]:
    """The body as it arrives.

    Raises:
        RequestTimeout: the client sends nothing, or next to nothing.
        ClientDisconnect: it went away.
    """
    stream, pace = request.stream(), Pace(idle_seconds)
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(idle_seconds):
                data = await anext(stream, None)
        except TimeoutError:
            raise RequestTimeout("The request body came too slowly.") from None
        if data is None:
            return
        if pace.is_too_slow(time.monotonic() - began, len(data)):
            raise RequestTimeout("The request body came too slowly.")
        if data:
            yield data


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge(f"The body is too large: at most {most_bytes} bytes are accepted.")


def expect_json(request: Request) -> None:
    """Only plain JSON is read.

    Raises:
        UnsupportedMedia: it is compressed, or another content type is declared.
    """
    refuse_encoding(request)
    declared = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if declared != "application/json":
        raise UnsupportedMedia("A JSON body is expected, as 'application/json'.", param="content-type")


async def read_json(request: Request) -> Any:
    """The value of a JSON body.

    Raises:
        UnsupportedMedia: it is compressed, or another content type is declared.
        TooLarge: it is over the limit.
        InvalidJson: it is not JSON in UTF-8.
    """
    expect_json(request)
    return strict_json.parse(await _read(request))


async def read_optional_json(request: Request) -> Any:
    """As `read_json`; an empty object where the client sent nothing."""
    data = await _read(request)
    if not data:
        return {}
    expect_json(request)
    return strict_json.parse(data)


async def _read(request: Request) -> bytes:
    most = request.app.state.settings.max_body_bytes
    body = bytearray()
    async for piece in pieces(request, request.app.state.settings.upload_idle_seconds):
        body += piece
        if len(body) > most:
            raise too_large(most)
    return bytes(body)


def checked(value: Any, model: type[Model]) -> Model:
    """A parsed body as `model`.

    Raises:
        InvalidRequest: it is none; the first fault, with its param and code.
    """
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_type")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_request(error.errors(include_url=False)) from None
