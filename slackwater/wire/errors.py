"""The error envelope, and the headers that tell a client whether trying again helps (contract: WIRE 1.11, 1.12)."""

from __future__ import annotations

from typing import Any, Final

from slackwater.errors import SlackwaterError

RETRY_AFTER_SECONDS: Final = 2
MAY_BE_TRANSIENT: Final = frozenset({408, 409, 429})


def envelope(message: str, type_: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def envelope_of(error: SlackwaterError) -> dict[str, Any]:
    return envelope(error.message, error.type, param=error.param, code=error.code)


def retry_headers(status: int, *, retryable: bool) -> dict[str, str]:
    """The OpenAI SDK sends a 408, 409, 429 or 5xx three times unless it is told that this is in vain."""
    if retryable:
        return {"retry-after": str(RETRY_AFTER_SECONDS), "retry-after-ms": str(RETRY_AFTER_SECONDS * 1000)}
    return {"x-should-retry": "false"} if status in MAY_BE_TRANSIENT or status >= 500 else {}
