"""A stream of events cut at their borders, so that one that breaks off never leaves half an event before the error that says so. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MOST_HELD: Final = 1 << 20
ENDS: Final = (b"\n\n", b"\n\r\n")
DONE: Final = re.compile(rb"^data: ?\[DONE\]\s*$", re.MULTILINE)


@dataclass
class WholeEvents:
    """`is_done` says that `[DONE]` came: a stream that ends without it has broken, however clean its end looks."""

    is_done: bool = False
    _held: bytearray = field(default_factory=bytearray)

    def feed(self, piece: bytes) -> bytes:
        """Every event that is whole by now, in the bytes that came; an event of more than 1 MiB is not waited for."""
        self._held += piece
        ends = [at + len(end) for end in ENDS if (at := self._held.rfind(end)) >= 0]
        most = len(self._held) if len(self._held) > MOST_HELD else 0
        return self._given(max(ends, default=most))

    def finish(self) -> bytes:
        """The rest, where it ends the stream as it should: the blank line behind `[DONE]` may be missing."""
        return self._given(len(self._held)) if DONE.search(self._held) else b""

    def _given(self, count: int) -> bytes:
        given = bytes(self._held[:count])
        del self._held[:count]
        self.is_done = self.is_done or DONE.search(given) is not None
        return given
