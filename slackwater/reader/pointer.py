"""JSON pointers (RFC 6901) to the places a reader complains about. Only ever used once something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

LONGEST = 200


class Pairs(list[tuple[str, object]]):
    """A JSON object as written: its members in order, repeated keys included."""


def first_place(value: object, wanted: Callable[[object], bool]) -> str | None:
    """The pointer to the first value, in the order written, that is wanted: `value` itself or one inside it.

    Never recurses, and holds no more than one iterator a level: depth and size are no danger. A pointer is
    made of the input's keys: it is cut at `LONGEST` characters, and lone surrogates in it become U+FFFD.
    """
    if wanted(value):
        return ""
    path: list[str | int] = []
    inside = [_children(value)]
    while inside:
        step = next(inside[-1], None)
        if step is None:
            inside.pop()
            del path[-1:]
        elif wanted(step[1]):
            return _printable("".join(map(_token, [*path, step[0]])))
        elif isinstance(step[1], dict | list):
            path.append(step[0])
            inside.append(_children(step[1]))
    return None


def extended(key: str, pointer: str) -> str:
    """The pointer to what `pointer` names inside the member `key`."""
    return _printable(_token(key) + pointer)


def _children(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Pairs):
        return iter(value)
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list) else iter(())


def _token(key: str | int) -> str:
    return "/" + str(key)[:LONGEST].replace("~", "~0").replace("/", "~1")


def _printable(pointer: str) -> str:
    shown = pointer if len(pointer) <= LONGEST else pointer[: LONGEST - 1] + "…"
    return shown.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
