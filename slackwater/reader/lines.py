"""Cuts a file, fed in pieces of any size, into lines, with bounded memory.

Only LF ends a line: a lone CR and U+2028 are data, a CR before the LF goes with it. Blank lines are
counted and skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from slackwater.reader.limits import LIMITS

BOM = b"\xef\xbb\xbf"
CR = 13
_BLANK_LINES = re.compile(rb"[ \t\r\n]*\n")
_BLANK = b" \t\r"


class Line(NamedTuple):
    """A line that holds something: `number` counts physical lines from 1, `start` bytes from 0."""

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
        self._kept = bytearray()
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
                data = piece[begin:end]
                usual = self._number > 1 and data[-1] != CR and len(data) <= self._limit
                line = (Line if usual else self._made)(self._number, base + begin, data)
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
        self._blank = (self._blank or not self._kept) and not part.strip(_BLANK)
        self._kept += part[: self._limit + 5 - len(self._kept)]

    def _joined(self, *, ended: bool) -> Line | LongLine | None:
        data = bytes(self._kept)
        self._kept.clear()
        if self._blank:
            return None
        return self._made(self._number, self._start, data if ended else data + b"\r")

    def _made(self, number: int, start: int, data: bytes) -> Line | LongLine | None:
        if number == 1 and data.startswith(BOM):
            data, start = data[3:], start + 3
        if data.endswith(b"\r"):
            data = data[:-1]
        if len(data) > self._limit:
            return LongLine(number, start)
        if data[:1] <= b" " and not data.strip(_BLANK):
            return None
        return Line(number, start, data)
