from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.members import read_members
from slackwater.reader.splice import DROPPED, splice
from slackwater.reader.strict_json import InvalidJson

NAMES = sorted(DROPPED | {"priority", "cache_salt", "model", "é", 'a"b', "\U0001f600", ""})
GAPS = st.sampled_from(["", " ", "\t", "\n", " \r\n "])
VALUES = st.sampled_from(
    [
        '"x"',
        "1.50",
        "1E+2",
        "12345678901234567890",
        "null",
        "[ 1 ,2]",
        '{"stream": true,"a":"}"}',
        '"\\u00e9é,\\""',
        "{}",
    ]
)


def written(name: str, style: int) -> str:
    if style == 2:
        units = name.encode("utf-16-be")
        return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'
    return json.dumps(name, ensure_ascii=style == 0)


@st.composite
def objects(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    members = [
        f"{draw(GAPS)}{written(name, draw(st.integers(0, 2)))}{draw(GAPS)}:{draw(GAPS)}{draw(VALUES)}" + draw(GAPS)
        for name in names
    ]
    return f"{draw(GAPS)}{{{draw(GAPS) if not members else ''}{','.join(members)}}}{draw(GAPS)}"


@given(
    text=objects(),
    put=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
    drop=st.sets(st.sampled_from(NAMES)),
)
def test_only_the_named_members_change(text: str, put: dict[str, str], drop: set[str]) -> None:
    names_as_written = {name: value.encode() for name, value in put.items()}

    spliced = splice(text.encode(), put=names_as_written, drop=drop)

    kept = {name: value for name, value in json.loads(text).items() if name not in drop or name in put}
    expected: dict[str, Any] = kept | {name: json.loads(value) for name, value in put.items()}
    assert list(json.loads(spliced).items()) == list(expected.items())
    position = 0
    for member in read_members(text).each:
        if member.key in put or member.key in drop:
            continue
        raw = text[member.opens : member.ends].encode()
        position = spliced.index(raw, position) + len(raw)


@given(text=objects())
def test_with_nothing_to_do_the_same_object_comes_back(text: str) -> None:
    body = text.encode()

    assert splice(body, put={}, drop=()) is body
    assert splice(body, put={}, drop={"absent"}) is body


@pytest.mark.parametrize(
    ("body", "put", "drop", "expected"),
    [
        ('{"\\u0073tream":true,"a":1}', {}, DROPPED, '{"a":1}'),
        ('{"a":1.0, "store":1, "b":2}', {}, DROPPED, '{"a":1.0,  "b":2}'),
        ('{"a":1,"store":1,"stream":2}', {}, DROPPED, '{"a":1}'),
        ('{"store":1,"stream":2}', {}, DROPPED, "{}"),
        ('{"stream":2}', {"priority": b"5"}, DROPPED, '{"priority":5}'),
        ("{ }", {"priority": b"5"}, (), '{"priority":5 }'),
        (
            '{"a":"é", "priority" : 1 }\n',
            {"priority": b"5", "cache_salt": b'"s"'},
            (),
            '{"a":"é", "priority" : 5,"cache_salt":"s" }\n',
        ),
        ('{"a":{"stream":true}}', {}, DROPPED, '{"a":{"stream":true}}'),
    ],
)
def test_bytes_are_exact(body: str, put: dict[str, bytes], drop: frozenset[str], expected: str) -> None:
    assert splice(body.encode(), put=put, drop=drop).decode() == expected


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"a":1,"a":2}', b'{"a":1,}', b"\xff", b'{"a":1} x'])
def test_what_is_not_one_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        splice(body, put={}, drop=DROPPED)
