"""What checks demand of a reply. Each of these raises `Mismatch` with what came instead."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from httpx2 import Response

SHOWN: Final = 300
RETRIED_BY_CLIENTS: Final = (408, 409, 429)
NO_SUCH_ROUTE: Final = (404, 405, 501)
REFUSED: Final = (400, 404, 422)


class Mismatch(Exception):
    """The server answered something else; the text says what."""


class NotOffered(Exception):
    """The server does not have this extension of ours; the text says how that was seen."""


def told(reply: Response) -> str:
    """A reply in one short line."""
    request = reply.request
    body = "(stream)" if not reply.is_stream_consumed and not reply.is_closed else reply.text
    text = " ".join(body.split())
    short = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return f"{request.method} {request.url.raw_path.decode()}: {reply.status_code} {short}".rstrip()


def holds(fact: object, answered: str) -> None:
    """Demand a fact; `answered` says what was seen instead."""
    if not fact:
        raise Mismatch(answered)


def equal(what: str, got: object, wanted: object) -> None:
    """Demand that a value is `wanted`, and of its type: `true` is not 1."""
    holds(got == wanted and isinstance(got, bool) == isinstance(wanted, bool), f"{what} is {got!r}, not {wanted!r}")


def ok(reply: Response, status: int = 200) -> dict[str, Any]:
    """Demand this status and a JSON object; returns the object."""
    holds(reply.status_code == status, told(reply))
    return _object(reply)


def offered(reply: Response, status: int = 200) -> Response:
    """Demand this status of a route of ours; a server that has no such route does not offer it."""
    if reply.status_code in NO_SUCH_ROUTE:
        raise NotOffered(told(reply))
    holds(reply.status_code == status, told(reply))
    return reply


def taken(reply: Response, *names: str, shown: bool = True) -> dict[str, Any]:
    """Demand that a create with a member of ours made its object; a server that refuses it by one of its names, or drops it, does not offer it.

    `shown`: the object repeats the member under the first of the names.
    """
    if reply.status_code in REFUSED and any(name in reply.text for name in names):
        raise NotOffered(told(reply))
    made = ok(reply)
    if shown and names[0] not in made:
        raise NotOffered(f"{names[0]} is ignored: {told(reply)}")
    return made


def members(value: dict[str, Any], wanted: Collection[str], what: str) -> None:
    """Demand that an object has these members, null or not."""
    missing = [name for name in wanted if name not in value]
    holds(not missing, f"the {what} lacks {', '.join(missing)}")


def error_of(reply: Response) -> dict[str, Any]:
    """Demand the error envelope; returns its inner object."""
    error = _object(reply).get("error")
    holds(isinstance(error, dict), f"no error envelope: {told(reply)}")
    assert isinstance(error, dict)
    members(error, ("message", "type", "param", "code"), "error")
    holds(isinstance(error["message"], str) and error["message"], f"no message: {told(reply)}")
    return error


def refused(reply: Response, status: int, *, param: str | None = "*", code: str | None = "*", says: str = "") -> None:
    """Demand a refusal: this status, the envelope, and where they are not `*` this param and this code."""
    holds(reply.status_code == status, told(reply))
    error = error_of(reply)
    if param != "*":
        holds(error["param"] == param, f"param is {error['param']!r}, not {param!r}: {told(reply)}")
    if code != "*":
        holds(error["code"] == code, f"code is {error['code']!r}, not {code!r}: {told(reply)}")
    holds(says.lower() in error["message"].lower(), f"the message does not say {says!r}: {told(reply)}")
    if status in RETRIED_BY_CLIENTS or status >= 500:
        never_again(reply)


def never_again(reply: Response) -> None:
    """Demand the header that keeps the SDK from sending a permanent refusal three times (WIRE 1.12)."""
    got = reply.headers.get("x-should-retry")
    holds(got == "false", f"x-should-retry is {got!r}, so that the client sends it again: {told(reply)}")


def _object(reply: Response) -> dict[str, Any]:
    try:
        value = reply.json()
    except ValueError:
        raise Mismatch(f"not JSON: {told(reply)}") from None
    holds(isinstance(value, dict), f"not an object: {told(reply)}")
    assert isinstance(value, dict)
    return value
