"""JSON as RFC 8259 has it and nothing more, on the standard library's scanner.

The standard library alone takes NaN, repeated keys, lone surrogates, UTF-16 and numbers that overflow, and
answers deep nesting with RecursionError. Here each of them is an `InvalidJson` with its own code.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Callable
from math import isinf
from typing import Any

from slackwater.reader.limits import LIMITS, Limits
from slackwater.reader.pointer import Pairs, extended, first_place

SPACE = " \t\n\r"
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|NaN|-?Infinity|-?[0-9][-+.eE0-9]*+')
_SEARCHED = 1 << 20  # in longer texts what is wrong is named without its place
_CONTAINERS = frozenset({dict, list})
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # twice as fast as `b"\\u" in source`


class InvalidJson(ValueError):
    """The text is not JSON as it is read here. `message` never repeats the text.

    `code`: invalid_json, invalid_unicode, duplicate_key, too_deep or number_out_of_range. `column` counts
    characters from 1 on its line, `offset` counts bytes from 0, `pointer` is a JSON pointer; what does not
    apply is None.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        pointer: str | None = None,
        column: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.pointer = pointer
        self.column = column
        self.offset = offset

    def inside(self, key: str) -> InvalidJson:
        """The same, with its pointer seen from the object that holds the text under `key`."""
        if self.pointer is not None:
            self.pointer = extended(key, self.pointer)
        return self


class _HookError(ValueError):
    """Raised inside the scanner, which does not tell its hooks where they are."""


class _RepeatedKeyError(_HookError): ...


class _ConstantError(_HookError): ...


class _OverflowError(_HookError): ...


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RepeatedKeyError
    return members


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise _OverflowError
    return number


def _no_constant(name: str) -> None:
    raise _ConstantError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
_AS_WRITTEN = json.JSONDecoder(object_pairs_hook=Pairs)


def parse(data: bytes, limits: Limits = LIMITS) -> Any:
    """The value of one JSON text in UTF-8. Raises InvalidJson, and nothing else, for any other bytes."""
    encoding = foreign_encoding(data)
    if encoding is not None:
        raise InvalidJson("invalid_unicode", f"The text is {encoding}; only UTF-8 without a byte order mark is read.")
    text = decode(data)
    value, end = scan(text, len(text) - len(text.lstrip(SPACE)))
    if text[end:].strip(SPACE):
        rest = end + len(text[end:]) - len(text[end:].lstrip(SPACE))
        raise at("invalid_json", "Extra data after the value", text, rest)
    screen(value, limits.max_depth, data)
    return value


def foreign_encoding(data: bytes) -> str | None:
    """The name of the encoding when the first bytes show that it is not plain UTF-8."""
    name = json.detect_encoding(data)
    if name == "utf-8":
        return None
    return "UTF-8 with a byte order mark" if name == "utf-8-sig" else name[:6].upper()


def decode(data: bytes) -> str:
    """The text of UTF-8 bytes. Raises InvalidJson with the byte offset of the first wrong byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = f"The text is not valid UTF-8 at byte offset {error.start}."
        raise InvalidJson("invalid_unicode", message, offset=error.start) from None


def scan(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins exactly at `start`, and where it ends. `screen` it before it is used."""
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise at("invalid_json", error.msg.partition(":")[0], text, error.pos) from None
    except RecursionError:
        raise _too_deep(None) from None
    except _RepeatedKeyError:
        raise _repeated_key(text, start) from None
    except _ConstantError:
        raise _bad_number("invalid_json", "NaN and Infinity are not JSON", text, start, _is_constant) from None
    except ValueError:
        raise _bad_number("number_out_of_range", "A number is out of range", text, start, _overflows) from None


def screen(value: Any, max_depth: int, source: bytes) -> None:
    """Refuses nesting deeper than `max_depth` and lone surrogates in a value that `scan` gave of the text in `source`."""
    level = [value] if type(value) in _CONTAINERS else []
    depth = 0
    while level:
        depth += 1
        if depth > max_depth:
            raise _too_deep(max_depth)
        below = []
        for container in level:
            for child in container.values() if type(container) is dict else container:
                if type(child) in _CONTAINERS:
                    below.append(child)
        level = below
    if _ESCAPED_SURROGATE.search(source) is None:  # It is UTF-8: only an escape brings half of a pair.
        return
    # marshal writes strings as UTF-8 with surrogates let through, and those start with 0xED.
    data = marshal.dumps(value)
    if b"\xed" in data and has_lone_surrogate(value):
        pointer = first_place(value, _holds_surrogate) if len(data) <= _SEARCHED else None
        message = "A string holds half of a surrogate pair, which stands for no character."
        raise InvalidJson("invalid_unicode", message, pointer=pointer)


def at(code: str, what: str, text: str, position: int) -> InvalidJson:
    """An error at a character position of `text`, with the place in its message."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    place = f"column {column}" if line == 1 else f"line {line}, column {column}"
    offset = len(text[:position].encode("utf-8", "surrogatepass"))
    return InvalidJson(code, f"{what} ({place}).", column=column, offset=offset)


def has_lone_surrogate(value: Any) -> bool:
    """Whether a string or a key in a parsed value holds half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _holds_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return not value.isascii() and _SURROGATE.search(value) is not None
    return isinstance(value, dict) and any(map(_holds_surrogate, value))


def _too_deep(max_depth: int | None) -> InvalidJson:
    allowed = "" if max_depth is None else f"; {max_depth} levels are allowed"
    return InvalidJson("too_deep", f"The value is nested too deeply{allowed}.")


def _repeated_key(text: str, start: int) -> InvalidJson:
    message = "An object has the same key twice."
    if len(text) > _SEARCHED:
        return InvalidJson("duplicate_key", message)
    try:
        value, _ = _AS_WRITTEN.raw_decode(text, start)
    except (ValueError, RecursionError):
        return InvalidJson("duplicate_key", message)
    return InvalidJson("duplicate_key", message, pointer=first_place(value, _repeats_a_key))


def _repeats_a_key(value: object) -> bool:
    return isinstance(value, Pairs) and len(dict(value)) != len(value)


def _bad_number(code: str, what: str, text: str, start: int, wanted: Callable[[str], bool]) -> InvalidJson:
    if len(text) <= _SEARCHED:
        for token in _TOKEN.finditer(text, start):
            if token[0][0] != '"' and wanted(token[0]):
                return at(code, what, text, token.start())
    return InvalidJson(code, f"{what}.")


def _is_constant(token: str) -> bool:
    return token.endswith(("NaN", "Infinity"))


def _overflows(token: str) -> bool:
    try:
        _finite(token) if any(mark in token for mark in ".eE") else int(token)
    except ValueError:
        return True
    return False
