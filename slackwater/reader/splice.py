"""Changes top-level members of a JSON object in place; every other byte stays as the client wrote it."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping

from slackwater.reader.members import Member, Members, read_members
from slackwater.reader.strict_json import decode

DROPPED = frozenset({"background", "store", "stream", "stream_options", "webhook", "service_tier"})
"""Members of a request that never reach an engine."""


def splice(body: bytes, *, put: Mapping[str, bytes], drop: Container[str]) -> bytes:
    """`body` with the members of `put` set and those of `drop` removed; a name in both is set.

    Values of `put` are JSON texts, inserted as they are: in place of the old value, or at the end in the
    order of `put`. A dropped member takes one adjacent comma with it and leaves the white space. Keys are
    compared unescaped. With nothing to do the same bytes object comes back. Raises InvalidJson if `body` is
    not one JSON object, or names a key twice.
    """
    text = decode(body)
    members = read_members(text)
    gone = [member for member in members.each if member.key in drop and member.key not in put]
    if not gone and not put:
        return body
    edits = _values(members, put) + _removals(members, gone) + _additions(members, gone, put)
    return _apply(text, edits).encode()


_Edit = tuple[int, int, str]


def _values(members: Members, put: Mapping[str, bytes]) -> list[_Edit]:
    return [(each.starts, each.ends, put[each.key].decode()) for each in members.each if each.key in put]


def _removals(members: Members, gone: list[Member]) -> list[_Edit]:
    """Of the commas between two kept members one stays; outside the kept ones, none."""
    if not gone:
        return []
    edits = [(member.opens, member.ends, "") for member in gone]
    kept = [position for position, member in enumerate(members.each) if member not in gone]
    needed = {members.each[position].comma for position in kept[:-1]}
    commas = [member.comma for member in members.each if member.comma >= 0]
    return edits + [(comma, comma + 1, "") for comma in commas if comma not in needed]


def _additions(members: Members, gone: list[Member], put: Mapping[str, bytes]) -> list[_Edit]:
    present = {member.key for member in members.each}
    new = [f"{json.dumps(name)}:{value.decode()}" for name, value in put.items() if name not in present]
    if not new:
        return []
    kept = [member for member in members.each if member not in gone]
    place = kept[-1].ends if kept else members.opens + 1
    return [(place, place, ",".join([""] * bool(kept) + new))]


def _apply(text: str, edits: list[_Edit]) -> str:
    pieces: list[str] = []
    position = 0
    for starts, ends, replacement in sorted(edits):
        pieces += (text[position:starts], replacement)
        position = ends
    return "".join([*pieces, text[position:]])
