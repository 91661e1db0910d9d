"""One tree of errors. The class carries the wire code and the HTTP status; `api` turns any of them into one envelope."""

from __future__ import annotations

from typing import ClassVar


class SlackwaterError(Exception):
    """Anything this product refuses or cannot do. `message` is for a person and never echoes a client's input."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param


class InvalidRequest(SlackwaterError):
    """The request is malformed or names something that may not be used so (400)."""

    status = 400
    type = "invalid_request_error"


class Unauthenticated(SlackwaterError):
    """No key, or one that is unknown, expired or revoked: the three look alike (401)."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"


class Forbidden(SlackwaterError):
    """The key lacks a scope (403)."""

    status = 403
    type = "invalid_request_error"
    default_code = "insufficient_scope"


class NotFound(SlackwaterError):
    """No such object for this tenant; another tenant's object looks the same (404)."""

    status = 404
    type = "invalid_request_error"


class Gone(NotFound):
    """It was there when it was found, and was deleted and purged before it could be read to its end (404)."""


class Conflict(SlackwaterError):
    """The object's state does not allow it, for good (409)."""

    status = 409
    type = "invalid_request_error"


class TooLarge(SlackwaterError):
    """The body is over a limit (413)."""

    status = 413
    type = "invalid_request_error"


class UnsupportedMedia(SlackwaterError):
    """A content type or encoding that is not read here (415)."""

    status = 415
    type = "invalid_request_error"


class RequestTimeout(SlackwaterError):
    """The client sent too slowly (408)."""

    status = 408
    type = "invalid_request_error"
    retryable = True


class TooMany(SlackwaterError):
    """More at once than one caller may have; trying again later is right (429)."""

    status = 429
    type = "rate_limit_error"
    retryable = True


class BadUpstream(SlackwaterError):
    """A model server's answer was cut or cannot be read (502)."""

    status = 502
    type = "server_error"
    default_code = "bad_upstream"
    retryable = True


class Unavailable(SlackwaterError):
    """A part that is needed does not answer now; trying again is right (503)."""

    status = 503
    type = "server_error"
    default_code = "unavailable"
    retryable = True


class Misconfigured(SlackwaterError):
    """A setting is missing or wrong; a person has to act. Never raised by a client's request."""
