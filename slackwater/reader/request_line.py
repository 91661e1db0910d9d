"""One line of a batch file: a request that may run, or the first reason why it may not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from slackwater.reader.body_rules import ENDPOINTS, Refusal, check_body, wrong_type
from slackwater.reader.limits import LIMITS, Limits
from slackwater.reader.lines import Line
from slackwater.reader.members import read_members
from slackwater.reader.prefix import prefix_key
from slackwater.reader.quick_json import read_quickly
from slackwater.reader.strict_json import InvalidJson, decode, foreign_encoding, screen

REQUIRED = ("custom_id", "method", "url", "body")


class RequestLine(NamedTuple):
    """A request that may run. Its body is the file's bytes `[body_start : body_start + body_length]`.

    `est_tokens` guesses the prompt's tokens: a quarter of the body's bytes, at least 1. `prefix_key` groups.
    """

    line: int
    custom_id: str
    url: str
    model: str
    model_id: int
    body_start: int
    body_length: int
    est_tokens: int
    prefix_key: int


class LineError(NamedTuple):
    """Why a line, or with `line` None the file, is refused. `custom_id` is set where it could be read."""

    code: str
    line: int | None
    param: str | None
    message: str
    custom_id: str | None = None

    def as_data(self) -> dict[str, str | int | None]:
        """One entry of the batch's `errors.data`."""
        return {"code": self.code, "line": self.line, "param": self.param, "message": self.message}


class _Refused(NamedTuple):
    """A line whose envelope is wrong, and the custom_id where it could be read."""

    why: Refusal
    custom_id: str | None


_Found = tuple[str, dict[str, Any], int, int]
"""The custom_id, the body, and where its bytes start and end on the line."""


class LineReader:
    """Reads the lines of one batch, whose `endpoint` is one of ENDPOINTS (KeyError otherwise).

    `model_id` answers None for a model that this tenant may not use, whether it exists or not.
    """

    def __init__(self, endpoint: str, model_id: Callable[[str], int | None], limits: Limits = LIMITS) -> None:
        self._url = endpoint
        self._prompt = ENDPOINTS[endpoint].prompt
        self._model_id = model_id
        self._limits = limits
        most = limits.max_custom_id_bytes
        self._usual_head = re.compile(_usual_head(endpoint, most).encode()).match
        self._readable_head = re.compile(_usual_head(endpoint, most // 4)).match

    def read(self, line: Line) -> RequestLine | LineError:
        """The request of a line. Never raises, whatever the bytes."""
        return self._usual(line) or self._long_way(line)

    def _usual(self, line: Line) -> RequestLine | None:
        """Most lines have the four members in the documented order, no fifth, and may run. None: the long way tells."""
        data = line.data
        head = self._usual_head(data)
        if head is None:
            return None
        members = read_quickly(data, self._limits.max_depth)
        if members is None or len(members) != len(REQUIRED) or type(members["body"]) is not dict:
            return None
        ends = data.rindex(b"}", 0, data.rindex(b"}")) + 1
        found = self._checked(line, members["custom_id"], members["body"], head.end(), ends)
        return found if type(found) is RequestLine else None

    def _long_way(self, line: Line) -> RequestLine | LineError:
        text = ""
        try:
            text = decode(line.data)
            found = self._any_order(text, line.data)
        except InvalidJson as error:
            head = self._readable_head(text)
            return _unreadable(line, error)._replace(custom_id=head[1] if head else None)
        if isinstance(found, _Refused):
            why = found.why
            return LineError(why.code, line.number, why.param, why.message, found.custom_id)
        return self._checked(line, *found)

    def _checked(
        self, line: Line, custom_id: str, body: dict[str, Any], starts: int, ends: int
    ) -> RequestLine | LineError:
        model_id = check_body(body, self._url, self._model_id)
        if isinstance(model_id, Refusal):
            return LineError(model_id.code, line.number, model_id.param, model_id.message, custom_id)
        length = ends - starts
        return RequestLine(
            line.number,
            custom_id,
            self._url,
            body["model"],
            model_id,
            line.start + starts,
            length,
            length + 3 >> 2,
            prefix_key(body, self._prompt),
        )

    def _any_order(self, text: str, source: bytes) -> _Found | _Refused:
        members = read_members(text)
        values = members.values()
        screen(values, self._limits.max_depth, source)
        if refusal := _check_envelope(values, self._url, self._limits):
            custom_id = values.get("custom_id")
            return _Refused(refusal, None if _check_custom_id(custom_id, self._limits) else custom_id)
        span = next(member for member in members.each if member.key == "body")
        starts = len(text[: span.starts].encode())
        return values["custom_id"], values["body"], starts, starts + len(text[span.starts : span.ends].encode())


def _usual_head(url: str, most: int) -> str:
    """A pattern that takes only a custom_id that needs no more checks: not blank, and at most `most` characters long."""
    gap = r"[ \t]*+"
    values = {
        "custom_id": rf'"([!#-\[\]-~][^"\\\x00-\x1f]{{0,{most - 1}}}+)"',
        "method": '"POST"',
        "url": f'"{re.escape(url)}"',
        "body": "",
    }
    members = [f'"{name}"{gap}:{gap}{value}' for name, value in values.items()]
    return rf"{gap}\{{{gap}" + f"{gap},{gap}".join(members)


def _check_envelope(values: dict[str, Any], url: str, limits: Limits) -> Refusal | None:
    for name in REQUIRED:
        if name not in values:
            return Refusal("missing_required_parameter", name, f"Missing required parameter: '{name}'.")
    if refusal := _check_custom_id(values["custom_id"], limits):
        return refusal
    if values["method"] != "POST":
        return Refusal("invalid_method", "method", "The method must be POST.")
    if values["url"] != url:
        message = "The URL provided for this request does not match the batch endpoint."
        return Refusal("invalid_url", "url", message)
    return None if isinstance(values["body"], dict) else wrong_type("body", "an object", values["body"])


def _check_custom_id(custom_id: object, limits: Limits) -> Refusal | None:
    if not isinstance(custom_id, str):
        return wrong_type("custom_id", "a string", custom_id)
    if not custom_id or custom_id.isspace():
        return Refusal("invalid_value", "custom_id", "'custom_id' must not be blank.")
    if "\0" in custom_id:
        return Refusal("invalid_value", "custom_id", "'custom_id' must not hold a NUL character.")
    most = limits.max_custom_id_bytes
    if len(custom_id) * 4 > most and len(custom_id.encode()) > most:
        return Refusal("invalid_value", "custom_id", f"'custom_id' must have at most {most} bytes in UTF-8.")
    return None


def _unreadable(line: Line, error: InvalidJson) -> LineError:
    encoding = foreign_encoding(line.data)
    if encoding is not None:
        return LineError("invalid_unicode", line.number, None, f"The line is {encoding}; only UTF-8 is read.")
    place = f" JSON pointer: {error.pointer}" if error.pointer else ""
    message = error.message + place
    if error.code == "invalid_json":
        return LineError("invalid_json_line", line.number, None, f"This line is not parseable as valid JSON. {message}")
    return LineError(error.code, line.number, None, message)
