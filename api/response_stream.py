"""The events of a background response as a stream: from the first one or from any other, and open until the last."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import structlog
from fastapi import Request
from fastapi.sse import EventSourceResponse, format_sse_event
from sqlalchemy.exc import SQLAlchemyError

from api.event_stream import HEADERS, EventStream, still_allowed
from slackwater.storage import responses
from slackwater.storage.database import Database
from slackwater.wire.response_events import Event, error_event

log = structlog.get_logger()
BROKEN_OFF: Final = "The stream was broken off here: go on with `starting_after`."


@dataclass
class ResponseStream(EventStream):
    """Tells the events after number `seen`. A stream that ends before the response did ends with an error event, which is none of the log's."""

    database: Database
    tenant_id: int
    response_id: str
    seen: int = -1

    async def look(self) -> tuple[list[bytes], bool]:
        try:
            async with self.database.tenant(self.tenant_id) as connection:
                there = await responses.find(connection, self.tenant_id, self.response_id)
        except (SQLAlchemyError, OSError) as error:
            log.warning("response.not_read", error=type(error).__name__)
            return [], False
        if there is None:
            return [_written(error_event("response_not_found", "The response was deleted.", self.seen + 1))], True
        pieces = []
        for event in there.events():
            if event["sequence_number"] > self.seen:
                self.seen = event["sequence_number"]
                pieces.append(_written(event))
        return pieces, there.ended is not None

    def broken_off(self) -> list[bytes]:
        """With the number of the last event, so that a reader who goes on after it misses nothing."""
        return [_written(error_event("stream_broken_off", BROKEN_OFF, max(self.seen, 0)))]


def stream_of(
    request: Request, database: Database, tenant_id: int, response_id: str, after: int = -1
) -> EventSourceResponse:
    """The reply that streams a response's events with numbers over `after`."""
    stream = ResponseStream(
        request.app.state.stopping, still_allowed(request), database, tenant_id, response_id, seen=after
    )
    return EventSourceResponse(stream.told(), headers=HEADERS)


def _written(event: Event) -> bytes:
    return bytes(format_sse_event(data_str=json.dumps(event), event=event["type"]))
