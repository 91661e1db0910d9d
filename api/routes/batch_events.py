"""`/v1/batches/{batch_id}/events`: what happens to a batch, as server-sent events that resume (contract: WIRE 8)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.responses import Response

from api.auth import BatchesReader, Gate, Store
from api.batch_lookup import found
from slackwater.errors import Unauthenticated
from slackwater.storage.database import Database
from slackwater.wire.batch import Counts
from slackwater.wire.batch_events import Seen, is_over, news

router = APIRouter(prefix="/v1/batches", tags=["batches"])
LOOK_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 15.0
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.get("/{batch_id}/events", response_class=Response)
async def events(
    batch_id: str,
    request: Request,
    caller: BatchesReader,
    database: Store,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Every change of status since the creation, or since `Last-Event-ID`, and the progress in between; ends with the last one.

    A reader that has seen the end gets 204, which tells an EventSource not to come again.
    """
    seen = Seen.of(last_event_id)
    async with database.tenant(caller.tenant_id) as connection:
        row = await found(connection, caller.tenant_id, batch_id)
    if is_over(dict(row), seen):
        return Response(status_code=204)
    told = Teller(database, caller.tenant_id, batch_id, seen, request.app.state.stopping, _still_allowed(request))
    return EventSourceResponse(told.stream(), headers=HEADERS)


def _still_allowed(request: Request) -> Callable[[], Awaitable[bool]]:
    """Whether the key that opened the stream is still good: it may be revoked long before the end."""
    gate: Gate = request.app.state.gate

    async def check() -> bool:
        try:
            await gate.principal(request.headers.get("authorization"))
        except Unauthenticated:
            return False
        return True

    return check


@dataclass
class Teller:
    """Looks at a batch's row twice a second, in a short transaction each time, and tells what is new."""

    database: Database
    tenant_id: int
    batch_id: str
    seen: Seen
    stopping: asyncio.Event
    is_allowed: Callable[[], Awaitable[bool]]
    quiet_seconds: float = QUIET_SECONDS

    async def stream(self) -> AsyncIterator[bytes]:
        """Until the end of the batch was told, the key is revoked, or this process stops: then the reader comes back, to another one."""
        told_at = time.monotonic()
        yield format_sse_event(comment="ok", retry=1000)
        while not self.stopping.is_set() and await self.is_allowed():
            pieces, over = await self._look()
            if not pieces and time.monotonic() - told_at > self.quiet_seconds:
                pieces = [format_sse_event(comment="still here")]
            for piece in pieces:
                yield piece
                told_at = time.monotonic()
            if over:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), LOOK_SECONDS)

    async def _look(self) -> tuple[list[bytes], bool]:
        async with self.database.tenant(self.tenant_id) as connection:
            row = dict(await found(connection, self.tenant_id, self.batch_id))
        pieces = []
        for event in news(row, Counts.of(row["counts"] or row), self.seen, datetime.now(UTC)):
            self.seen = event.seen
            pieces.append(format_sse_event(data_str=json.dumps(event.body), event=event.type, id=str(event.seen)))
        return pieces, is_over(row, self.seen)
