"""`/v1/batches/{batch_id}/events`: what happens to a batch, as server-sent events that resume (contract: WIRE 8)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, ClassVar

from fastapi import APIRouter, Header, Request
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.responses import Response

from api.auth import BatchesReader, Store
from api.batch_lookup import found
from api.event_stream import HEADERS, EventStream, still_allowed
from slackwater.storage.database import Database
from slackwater.wire.batch import Counts
from slackwater.wire.batch_events import Seen, is_over, news

router = APIRouter(prefix="/v1/batches", tags=["batches"])


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
    told = Teller(request.app.state.stopping, still_allowed(request), database, caller.tenant_id, batch_id, seen)
    return EventSourceResponse(told.told(), headers=HEADERS)


@dataclass
class Teller(EventStream):
    """The events of one batch. Where it ends early the reader comes back by itself, to another process."""

    database: Database
    tenant_id: int
    batch_id: str
    seen: Seen
    opening: ClassVar[bytes] = format_sse_event(comment="ok", retry=1000)

    async def look(self) -> tuple[list[bytes], bool]:
        async with self.database.tenant(self.tenant_id) as connection:
            row = dict(await found(connection, self.tenant_id, self.batch_id))
        pieces = []
        for event in news(row, Counts.of(row["counts"] or row), self.seen, datetime.now(UTC)):
            self.seen = event.seen
            pieces.append(format_sse_event(data_str=json.dumps(event.body), event=event.type, id=str(event.seen)))
        return pieces, is_over(row, self.seen)
