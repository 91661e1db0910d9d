"""JSON pointers (RFC 6901) to the places a reader complains about. Only ever used once something is wrong."""

from __future__ import annotations

from collections.abc import Iterator

LONGEST = 200


class Pairs(list[tuple[str, object]]):
    """A JSON object as written: its members in order, repeated keys included."""


def places(value: object) -> Iterator[tuple[str, object]]:
    """`value` and all it holds with their pointers, in the order written. Never recurses: depth is no danger.

    A pointer is made of the input's keys: it is cut at `LONGEST` characters, lone surrogates become U+FFFD.
    """
    stack: list[tuple[str, object]] = [("", value)]
    while stack:
        pointer, current = stack.pop()
        yield _printable(pointer), current
        stack.extend(reversed([(_join(pointer, key), child) for key, child in _children(current)]))


def _children(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Pairs):
        return list(value)
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return [(str(index), child) for index, child in enumerate(value)]
    return []


def _join(pointer: str, key: str) -> str:
    escaped = key[:LONGEST].replace("~", "~0").replace("/", "~1")
    return f"{pointer}/{escaped}"[: LONGEST + 1]


def _printable(pointer: str) -> str:
    shown = pointer if len(pointer) <= LONGEST else pointer[: LONGEST - 1] + "…"
    return shown.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
