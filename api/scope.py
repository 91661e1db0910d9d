"""Around every request: its id, its security headers, its duration, and a net for what no handler caught."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import reply_to
from slackwater import ids
from slackwater.errors import InvalidRequest
from slackwater.telemetry import HTTP_SECONDS

log = structlog.get_logger()
LINGER_SECONDS: Final = 1.0
# A body without end would otherwise be read on, for nothing.
CLOSE: Final = (b"connection", b"close")
CLIENT_ID: Final = re.compile(rb"[A-Za-z0-9_-]{1,64}")


class BrokenOff(Exception):
    """A reply that had begun could not be finished: the connection is closed, so that nobody takes it for whole."""


@dataclass
class Incoming:
    """The request's body on its way in, and whether all of it came."""

    source: Receive
    is_read: bool

    async def receive(self) -> Message:
        message = await self.source()
        if not message.get("more_body", False):
            self.is_read = True
        return message

    async def linger(self) -> bool:
        """Give a client that is still sending a moment, so that it reads the refusal and not a reset. False: it still sends."""
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.is_read:
                    await self.receive()
        except TimeoutError:
            self.is_read = True
            return False
        return True


class RequestScope:
    """The outermost layer of ours; plain ASGI, so that streams pass through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, began, status = ids.new("req_"), time.perf_counter(), 0
        incoming = Incoming(receive, is_read=not _has_body(scope))
        is_ambiguous = _is_ambiguous(scope)

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                ends_here = is_ambiguous or (status >= 400 and not await incoming.linger())
                closing = [CLOSE] if ends_here else []
                message["headers"] = [*message.get("headers", ()), *stamps(request_id), *closing]
            await send(message)

        structlog.contextvars.bind_contextvars(request_id=request_id, **_client_id(scope))
        try:
            if is_ambiguous:
                raise InvalidRequest(
                    "A request has a Content-Length or a Transfer-Encoding, not both.", code="invalid_value"
                )
            await self.app(scope, incoming.receive, stamped)
        except Exception as error:
            response = reply_to(error)
            if status:
                log.warning("reply.broken_off", error=type(error).__name__)
                raise BrokenOff from None
            await response(scope, incoming.receive, stamped)
        finally:
            structlog.contextvars.clear_contextvars()
            _measure(scope, status, time.perf_counter() - began)


def _has_body(scope: Scope) -> bool:
    """A client that waits for `100 Continue` has sent no body yet, and need not."""
    headers = dict(scope["headers"])
    comes = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
    return comes and b"expect" not in headers


def _is_ambiguous(scope: Scope) -> bool:
    """Two lengths: a proxy before us may have believed the other one, and taken what follows for another request."""
    names = {name for name, _ in scope["headers"]}
    return {b"content-length", b"transfer-encoding"} <= names


def stamps(request_id: str) -> list[tuple[bytes, bytes]]:
    """The headers that every reply carries."""
    return [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]


def _client_id(scope: Scope) -> dict[str, str]:
    """The client's own `x-request-id`, for the log only, when it is a plain word."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and CLIENT_ID.fullmatch(value):
            return {"client_request_id": value.decode()}
    return {}


def _measure(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", None) or "none"
    method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD") else "other"
    HTTP_SECONDS.labels(method, route, str(status)).observe(seconds)
