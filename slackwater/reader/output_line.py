"""Lines of output and error files, in OpenAI's shape, with the engine's bytes kept exact."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, NamedTuple

from slackwater.reader.strict_json import has_lone_surrogate
from slackwater.reader.usage import UNKNOWN, Usage, usage_of

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SEPARATORS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\u0085": "\\u0085"}
_BAD_UPSTREAM = {
    "error": {
        "message": "The model server's answer was not JSON.",
        "type": "server_error",
        "param": None,
        "code": "bad_upstream",
    }
}


class Answer(NamedTuple):
    """An engine's answer, ready for a line: `body` is JSON without line breaks of any kind.

    `reencoded`: the engine's bytes were not JSON that every reader takes, and were written anew.
    """

    status: int
    body: bytes
    reencoded: bool
    usage: Usage


def read_answer(status: int, body: bytes) -> Answer:
    """What the engine's bytes become in a line. Never raises: no result is lost because of a character.

    Valid JSON keeps its bytes, but for line breaks: raw CR and LF, which it has between tokens only, go,
    and U+2028, U+2029 and U+0085 become escapes. NaN, Infinity, raw control characters, lone surrogates and
    bytes that are not UTF-8 make the body be written anew, with null and U+FFFD in their place. What is no
    JSON at all becomes an error object of code `bad_upstream`, with status 502 in place of a 2xx.
    """
    try:
        text = body.decode()
        value = _STRICT.decode(text)
        if not _SURROGATE_ESCAPE.search(text) or not has_lone_surrogate(value):
            return Answer(status, _on_one_line(body), False, usage_of(value))
    except (ValueError, RecursionError):
        pass
    return _mended(status, body)


def answer_line(line_id: str, custom_id: str, request_id: str | None, answer: Answer) -> bytes:
    """The line of a request that an engine answered, with its newline."""
    response = f'"status_code":{answer.status},"request_id":{json.dumps(request_id)}'
    head = f'{_opening(line_id, custom_id)},"response":{{{response},"body":'
    mark = b',"slackwater":{"reencoded":true}' if answer.reencoded else b""
    return b"".join((head.encode(), answer.body, mark, b'},"error":null}\n'))


def error_line(line_id: str, custom_id: str | None, code: str, message: str) -> bytes:
    """The line of a request that has no answer: expired, cancelled, refused (then its `custom_id` may be unknown) or given up."""
    error = f'{{"code":{json.dumps(code)},"message":{json.dumps(message)}}}'
    return f'{_opening(line_id, custom_id)},"response":null,"error":{error}}}\n'.encode()


def _opening(line_id: str, custom_id: str | None) -> str:
    return f'{{"id":{json.dumps(line_id)},"custom_id":{json.dumps(custom_id)}'


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _null(_: str) -> None:
    return None


def _finite_or_null(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None


def _whole_or_null(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder(strict=False, parse_constant=_null, parse_float=_finite_or_null, parse_int=_whole_or_null)


def _mended(status: int, body: bytes) -> Answer:
    try:
        value = _LENIENT.decode(body.decode("utf-8-sig", "replace"))
        return Answer(status, _written(value), True, usage_of(value))
    except (ValueError, RecursionError):
        kept = 502 if 200 <= status < 300 else status
        return Answer(kept, _written(_BAD_UPSTREAM), True, UNKNOWN)


def _written(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _on_one_line(whole.encode())


def _on_one_line(body: bytes) -> bytes:
    joined = body.replace(b"\r", b"").replace(b"\n", b"")
    if not joined.isascii():
        for separator, escape in _SEPARATORS.items():
            joined = joined.replace(separator.encode(), escape.encode())
    return joined
