"""Cuts a file, fed in pieces of any size, into lines, with bounded memory.

Only LF ends a line: a lone CR and U+2028 are data, a CR before the LF goes with it. Blank lines are skipped but
counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from slackwater.reader.limits import LIMITS

BOM = b"\xef\xbb\xbf"
_BLANK_LINES = re.compile(rb"[ \t\r\n]*\n")
_BLANK = b" \t\r"


class Line(NamedTuple):
    """A line that holds something. `number` counts physical lines from 1, `start` bytes in the file from 0."""

    number: int
    start: int
    data: bytes


class LongLine(NamedTuple):
    """A line over the limit; its bytes were not kept."""

    number: int
    start: int


class LineSplitter:
    """Feed the pieces in order, and exhaust each iterator before the next call.

    Holds at most one line of `max_line_bytes` and a few bytes more, besides the piece it was given.
    """

    def __init__(self, max_line_bytes: int = LIMITS.max_line_bytes) -> None:
        self._limit = max_line_bytes
        self._number = 1
        self._start = 0
        self._offset = 0
        self._parts: list[bytes] = []
        self._room = 0
        self._blank = True

    def feed(self, piece: bytes) -> Iterator[Line | LongLine]:
        """The lines that end in this piece."""
        base, begin = self._offset, 0
        self._offset += len(piece)
        while (end := piece.find(b"\n", begin)) >= 0:
            if self._start < base:
                self._keep(piece[:end])
                line = self._joined(ended=True)
            elif piece[begin] <= 32 and (blank := _BLANK_LINES.match(piece, begin)):
                end, line = blank.end() - 1, None
                self._number += piece.count(b"\n", begin, end)
            else:
                line = self._made(piece[begin:end], base + begin)
            if line is not None:
                yield line
            begin = end + 1
            self._number += 1
            self._start = base + begin
        if begin < len(piece):
            self._keep(piece[begin:] if begin else piece)

    def finish(self) -> Iterator[Line | LongLine]:
        """The last line, if the file does not end with a newline."""
        if self._start < self._offset and (line := self._joined(ended=False)) is not None:
            yield line
        self._start = self._offset

    def _keep(self, part: bytes) -> None:
        """Adds to the open line; what is beyond the limit, a BOM, a CR and one byte more is dropped."""
        if not self._parts:
            self._room, self._blank = self._limit + 5, True
        self._blank = self._blank and not part.strip(_BLANK)
        self._parts.append(part[: self._room])
        self._room = max(0, self._room - len(part))

    def _joined(self, *, ended: bool) -> Line | LongLine | None:
        data, self._parts = b"".join(self._parts), []
        if self._blank:
            return None
        return self._made(data, self._start) if ended else self._made(data + b"\r", self._start)

    def _made(self, data: bytes, start: int) -> Line | LongLine | None:
        if self._number == 1 and data.startswith(BOM):
            data, start = data[3:], start + 3
        if data.endswith(b"\r"):
            data = data[:-1]
        if len(data) > self._limit:
            return LongLine(self._number, start)
        if data[:1] <= b" " and not data.strip(_BLANK):
            return None
        return Line(self._number, start, data)
