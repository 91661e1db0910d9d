"""One byte range of a file (RFC 9110, 14). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SINGLE: Final = re.compile(r"bytes=\s*([0-9]{0,19})-([0-9]{0,19})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` up to but not including `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class Unsatisfiable(Exception):
    """The range lies outside of the file (416)."""


def span_of(header: str | None, size: int) -> Span | None:
    """The part of a file of `size` bytes that a Range header asks for; None for the whole.

    Several ranges, other units and malformed headers are answered with the whole, as the standard allows.

    Raises:
        Unsatisfiable: a single range that the file does not have.
    """
    found = SINGLE.fullmatch(header.strip()) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        suffix = int(found[2])
        if suffix == 0 or size == 0:
            raise Unsatisfiable
        return Span(max(0, size - suffix), size)
    start = int(found[1])
    stop = min(int(found[2]) + 1, size) if found[2] else size
    if found[2] and int(found[2]) < start:
        return None
    if start >= size:
        raise Unsatisfiable
    return Span(start, stop)
