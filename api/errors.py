"""The one place where an error becomes a reply."""

from __future__ import annotations

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from slackwater.errors import Misconfigured, SlackwaterError, Unauthenticated, Unavailable
from slackwater.reader.strict_json import InvalidJson
from slackwater.wire.errors import envelope, envelope_of, retry_headers
from slackwater.wire.invalid import invalid_request

log = structlog.get_logger()
CLIENT_CLOSED = 499
PHRASES = {
    404: "There is nothing at this address.",
    405: "This method is not allowed here.",
}


def reply(error: SlackwaterError) -> JSONResponse:
    """The envelope of an error, with the headers that say whether trying again helps."""
    headers = retry_headers(error.status, retryable=error.retryable)
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(envelope_of(error), error.status, headers)


def reply_to(error: Exception) -> Response:
    """The reply to any exception. What is not ours is logged by type and place, and never shown."""
    match error:
        case Misconfigured():
            log.error("api.misconfigured", message=error.message)
            return reply(SlackwaterError("The server is not set up for this."))
        case SlackwaterError():
            return reply(error)
        case InvalidJson():
            return JSONResponse(envelope(error.message, "invalid_request_error", code=error.code), 400)
        case ClientDisconnect():
            return Response(status_code=CLIENT_CLOSED)
        case OperationalError() | InterfaceError() | PoolTimeout():
            log.warning("database.unavailable", error=type(error).__name__)
            return reply(Unavailable("The database does not answer; try again."))
        case DBAPIError() if error.connection_invalidated:
            return reply(Unavailable("The database does not answer; try again."))
        case _:
            log.error("request.failed", exc_info=error)
            return reply(SlackwaterError("Something went wrong on our side.", code="internal_error"))


async def _known(_: Request, error: Exception) -> Response:
    return reply_to(error)


async def _refused_by_routing(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "server_error" if error.status_code >= 500 else "invalid_request_error"
    message = PHRASES.get(error.status_code, "The request was refused.")
    headers = dict(error.headers or {}) | retry_headers(error.status_code, retryable=False)
    return JSONResponse(envelope(message, kind), error.status_code, headers)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return reply(invalid_request(error.errors(), skip=1))


def install(app: FastAPI) -> None:
    """Every error of every route gets the envelope; unexpected ones are caught by `api.scope`."""
    app.add_exception_handler(HTTPException, _refused_by_routing)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(SlackwaterError, _known)
    app.add_exception_handler(InvalidJson, _known)
