"""How a stream of each live route ends when it is whole, and what is said in its place when it breaks off. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Protocol

from slackwater.wire.errors import envelope

BROKEN: Final = "The model server broke the stream off."
CODE: Final = "bad_upstream"
DONE: Final = re.compile(rb"^data: ?\[DONE\]\s*$", re.MULTILINE)
# Inside of a JSON string quotes are escaped: what matches stands outside of all text.
LAST_TYPES: Final = ("response.completed", "response.failed", "response.incomplete", "error")
LAST_TYPE: Final = re.compile(
    rb'^data:.*"type"\s*:\s*"(?:%s)".*$' % b"|".join(re.escape(name).encode() for name in LAST_TYPES), re.MULTILINE
)
NUMBER: Final = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,15})')


class StreamEnd(Protocol):
    """Watches whole events go by. `is_done` says that the one came which ends a stream of this kind.

    `most_held` is the most bytes of one event that is waited for.
    """

    is_done: bool
    most_held: int

    def see(self, events: bytes) -> None:
        """Take note of events that were passed on."""
        ...

    def ends(self, rest: bytes) -> bool:
        """Whether these bytes without a blank line behind them end the stream all the same."""
        ...

    def broken(self) -> bytes:
        """The event for a stream that ends otherwise, as every version of the client understands it."""
        ...


@dataclass
class DoneMark:
    """Chat and text completions end with `[DONE]`."""

    is_done: bool = False
    most_held: int = 1 << 20

    def see(self, events: bytes) -> None:
        self.is_done = self.is_done or DONE.search(events) is not None

    def ends(self, rest: bytes) -> bool:
        return DONE.search(rest) is not None

    def broken(self) -> bytes:
        return f"data: {json.dumps(envelope(BROKEN, 'server_error', code=CODE))}\n\n".encode()


@dataclass
class LastEvent:
    """A stream of a response ends with one of four events, which may repeat all of its output, and has no mark behind it."""

    is_done: bool = False
    most_held: int = 16 << 20
    number: int = -1

    def see(self, events: bytes) -> None:
        for found in NUMBER.finditer(events):
            self.number = max(self.number, int(found[1]))
        self.is_done = self.is_done or any(_is_last(found[0]) for found in LAST_TYPE.finditer(events))

    def ends(self, rest: bytes) -> bool:
        """Never: a client drops an event that no blank line follows."""
        return False

    def broken(self) -> bytes:
        return error_event(self.number + 1, CODE, BROKEN)


def error_event(number: int, code: str, message: str) -> bytes:
    """The last event of a response's stream that cannot go on."""
    said = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": number}
    return f"event: error\ndata: {json.dumps(said)}\n\n".encode()


def _is_last(line: bytes) -> bool:
    """The type is that of the event itself, not of something in it."""
    try:
        event: Any = json.loads(line.removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("type") in LAST_TYPES


def end_of(path: str) -> StreamEnd:
    """What ends the streams of a live route."""
    return LastEvent() if path == "/v1/responses" else DoneMark()
