"""Where the members of a JSON object stand in its text."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from slackwater.reader.strict_json import InvalidJson, at, scan

_space = re.compile(r"[ \t\n\r]*").match


class Member(NamedTuple):
    """One member: `text[opens:starts]` is its key with the colon, `text[starts:ends]` its value as written.

    `comma` is the position of the comma after it, -1 for the last member. `key` is unescaped.
    """

    key: str
    opens: int
    starts: int
    ends: int
    comma: int
    value: Any


class Members(NamedTuple):
    """The members of an object in order; its braces are `text[opens]` and `text[ends - 1]`."""

    opens: int
    ends: int
    each: list[Member]

    def values(self) -> dict[str, Any]:
        return {member.key: member.value for member in self.each}


def read_members(text: str) -> Members:
    """The members of the one object that `text` holds. Depth and surrogates are left to `screen`.

    Raises InvalidJson if the text is anything else, or names a key twice.
    """
    opens = _skip(text, 0)
    if text[opens : opens + 1] != "{":
        scan(text, opens)
        raise at("invalid_json", "Expecting an object", text, opens)
    each, ends = _read(text, opens)
    if _skip(text, ends) != len(text):
        raise at("invalid_json", "Extra data after the object", text, _skip(text, ends))
    if len({member.key for member in each}) != len(each):
        raise InvalidJson("duplicate_key", "An object has the same key twice.", pointer="")
    return Members(opens, ends, each)


def _read(text: str, opens: int) -> tuple[list[Member], int]:
    each: list[Member] = []
    position = _skip(text, opens + 1)
    if text[position : position + 1] == "}":
        return each, position + 1
    while True:
        member = _read_member(text, position)
        each.append(member)
        if member.comma < 0:
            return each, _skip(text, member.ends) + 1
        position = _skip(text, member.comma + 1)


def _read_member(text: str, opens: int) -> Member:
    if text[opens : opens + 1] != '"':
        raise at("invalid_json", "Expecting property name enclosed in double quotes", text, opens)
    key, position = scan(text, opens)
    colon = _skip(text, position)
    if text[colon : colon + 1] != ":":
        raise at("invalid_json", "Expecting ':' delimiter", text, colon)
    starts = _skip(text, colon + 1)
    try:
        value, ends = scan(text, starts)
    except InvalidJson as error:
        raise error.inside(key) from None
    after = _skip(text, ends)
    if text[after : after + 1] not in (",", "}"):
        raise at("invalid_json", "Expecting ',' delimiter", text, after)
    return Member(key, opens, starts, ends, after if text[after] == "," else -1, value)


def _skip(text: str, position: int) -> int:
    found = _space(text, position)
    return found.end() if found else position
