"""Server-sent events that any process can tell from rows alone: it looks twice a second, in a short transaction each time, until the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from fastapi import Request
from fastapi.sse import format_sse_event

from api.auth import Gate
from slackwater.errors import Unauthenticated

LOOK_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 15.0
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


@dataclass
class EventStream(ABC):
    """What is told, until its end was told, the reader may read no more, or this process stops."""

    stopping: asyncio.Event
    is_allowed: Callable[[], Awaitable[bool]]
    opening: ClassVar[bytes] = format_sse_event(comment="ok")

    @abstractmethod
    async def look(self) -> tuple[list[bytes], bool]:
        """What is new, as written events, and whether that was the end."""

    def broken_off(self) -> list[bytes]:
        """What a reader is told for whom this stream ends before its end."""
        return []

    async def told(self, quiet_seconds: float = QUIET_SECONDS) -> AsyncIterator[bytes]:
        """The pieces of the reply's body; a comment where nothing happens for `quiet_seconds`."""
        told_at = time.monotonic()
        yield self.opening
        while not self.stopping.is_set() and await self.is_allowed():
            pieces, over = await self.look()
            if not pieces and time.monotonic() - told_at > quiet_seconds:
                pieces = [format_sse_event(comment="still here")]
            for piece in pieces:
                yield piece
                told_at = time.monotonic()
            if over:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), LOOK_SECONDS)
        for piece in self.broken_off():
            yield piece


def still_allowed(request: Request) -> Callable[[], Awaitable[bool]]:
    """Whether the key that opened the stream is still good: it may be revoked long before the end."""
    gate: Gate = request.app.state.gate

    async def check() -> bool:
        try:
            await gate.principal(request.headers.get("authorization"))
        except Unauthenticated:
            return False
        return True

    return check
