"""A stream of events cut at their borders, so that one that breaks off never leaves half an event before the error that says so. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from api.gateway.stream_ends import DoneMark, StreamEnd

ENDS: Final = (b"\n\n", b"\n\r\n")


@dataclass
class WholeEvents:
    """`is_done` says that what ends such a stream came: one that ends without it has broken, however clean its end looks."""

    end: StreamEnd = field(default_factory=DoneMark)
    _held: bytearray = field(default_factory=bytearray)

    @property
    def is_done(self) -> bool:
        return self.end.is_done

    def feed(self, piece: bytes) -> bytes:
        """Every event that is whole by now, in the bytes that came; one of more than `most_held` bytes is not waited for."""
        searched = max(0, len(self._held) - 2)
        self._held += piece
        ends = [at + len(end) for end in ENDS if (at := self._held.rfind(end, searched)) >= 0]
        most = len(self._held) if len(self._held) > self.end.most_held else 0
        return self._given(max(ends, default=most))

    def finish(self) -> bytes:
        """The rest, where it ends the stream as it should: the blank line behind `[DONE]` may be missing."""
        return self._given(len(self._held)) if self.end.ends(bytes(self._held)) else b""

    def _given(self, count: int) -> bytes:
        given = bytes(self._held[:count])
        del self._held[:count]
        self.end.see(given)
        return given
