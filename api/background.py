"""Creating a response in the background: what of its body is checked, and the one transaction that makes it or finds it made."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import JSONResponse, Response

from api import idempotency
from api.bodies import checked
from api.live_body import LiveBody
from api.response_lookup import found
from api.response_stream import stream_of
from slackwater import ids
from slackwater.errors import InvalidRequest, NotFound, TooLarge
from slackwater.reader.limits import Limits
from slackwater.reader.lines import Line
from slackwater.reader.request_line import LineError, LineReader
from slackwater.reader.splice import splice
from slackwater.settings import Settings
from slackwater.storage import responses
from slackwater.storage.database import Database
from slackwater.storage.idempotency import Known, earlier, hash_of, remember
from slackwater.tenancy import models
from slackwater.tenancy.keys import Principal
from slackwater.wire.response import ENDPOINT, PREFIX
from slackwater.wire.response_request import TAKEN_OUT, CreateResponse, request_line

ROUTE: Final = "responses"


async def created(request: Request, database: Database, caller: Principal, body: LiveBody) -> Response:
    """The reply to a create: the response as it is now, or the stream of its events.

    Raises:
        InvalidRequest: the body breaks a rule, of ours or of a batch's line.
        TooLarge: it is longer than a line may be.
        NotFound: no such model for this tenant.
        Conflict: the `Idempotency-Key` was used for another body.
    """
    asked = checked(body.value, CreateResponse)
    public_id = ids.new(PREFIX)
    line = _line(request.app.state.settings, public_id, body)
    same = idempotency.create_of(request, caller, ROUTE, hash_of(body.value))
    async with database.tenant(caller.tenant_id) as connection:
        before = await earlier(connection, same)
        if before is None:
            await _make(connection, caller, public_id, line, body, asked)
        known = before or await remember(connection, same, public_id)
        there = await found(connection, caller.tenant_id, known.object_id)
        shown = await responses.shown(connection, there)
    reply = _stream(request, database, caller, known) if asked.stream else JSONResponse(shown)
    return idempotency.Noted(reply, database, same, known, is_replay=before is not None)


async def _make(
    connection: AsyncConnection, caller: Principal, public_id: str, line: bytes, body: LiveBody, asked: CreateResponse
) -> None:
    if not await models.usable(connection, caller.tenant_id, body.model):
        raise NotFound("The model does not exist or you may not use it.", code="model_not_found", param="model")
    await responses.create(
        connection,
        caller.tenant_id,
        caller.project_id,
        caller.key_id,
        public_id=public_id,
        line=line,
        body=body.value,
        asked=asked,
    )


def _line(settings: Settings, public_id: str, body: LiveBody) -> bytes:
    """The stored line, which keeps the client's bytes but for the members that are ours; it is read as planning will read it."""
    line = request_line(public_id, splice(body.data, put={}, drop=TAKEN_OUT))
    if len(line) > settings.max_line_bytes:
        raise TooLarge(f"The body is too large: its line has at most {settings.max_line_bytes} bytes.")
    limits = Limits(max_line_bytes=settings.max_line_bytes)
    read = LineReader(ENDPOINT, lambda _: 0, limits).read(Line(1, 0, line))
    if isinstance(read, LineError):
        raise InvalidRequest(_said(read), code=read.code, param=_param(read))
    return line


def _said(error: LineError) -> str:
    return error.message.replace("'body.", "'").replace("in a batch", "here")


def _param(error: LineError) -> str | None:
    return error.param.removeprefix("body.") if error.param else None


def _stream(request: Request, database: Database, caller: Principal, known: Known) -> Response:
    return stream_of(request, database, caller.tenant_id, known.object_id)
