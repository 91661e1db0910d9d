"""Connections that say nothing, say it a byte at a time, or say what is no HTTP: none is kept open without a whole request's head for long.

The server's own timer covers only the time between two requests. A body has its own pace (`api.bodies`).
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.scope import stamps
from slackwater import ids
from slackwater.wire.errors import envelope

HEAD_SECONDS: Final = 15.0
NO_HTTP: Final = json.dumps(envelope("The request is not valid HTTP.", "invalid_request_error")).encode()


class HeadsInTime(H11Protocol):
    """Closes a connection whose next request's head is not complete `head_seconds` after it was opened, or after its first byte."""

    head_seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._timer is None:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read reaches no route: its refusal gets the envelope and an id here, and the connection ends."""
        kind = (b"content-type", b"application/json"), (b"content-length", str(len(NO_HTTP)).encode())
        headers = [*kind, (b"connection", b"close"), *stamps(ids.new("req_"))]
        head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=NO_HTTP), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE:
            self.timeout_keep_alive_handler()
