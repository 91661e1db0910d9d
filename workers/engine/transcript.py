"""Collects what a request has produced, as bytes, and finds its stop strings. Pure."""

import codecs
from collections.abc import Sequence


class Transcript:
    """Bytes so far. A stop string may span tokens, and a character may too, so matching is on UTF-8 bytes."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop.encode("utf-8") for stop in stops)
        self._reach = max((len(stop) for stop in self._stops), default=1) - 1
        self._made = bytearray()

    def add(self, piece: bytes) -> bool:
        """True where a stop string is complete: the text then ends just before the earliest one."""
        start = max(0, len(self._made) - self._reach)
        self._made += piece
        found = [at for at in (self._made.find(stop, start) for stop in self._stops) if at >= 0]
        if found:
            del self._made[min(found) :]
        return bool(found)

    def text(self) -> str:
        """An unfinished last character is left out; other bytes that are no UTF-8 become U+FFFD."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._made))
