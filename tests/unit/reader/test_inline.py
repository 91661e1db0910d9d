"""Requests inside a JSON body: each element's bytes become a line, the rest says whether the whole is JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.inline import InlineSplitter
from slackwater.reader.lines import Line, LineSplitter
from slackwater.reader.strict_json import InvalidJson, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def split(body: bytes, size: int = 1 << 16) -> tuple[bytes, bytes]:
    splitter = InlineSplitter()
    lines = b"".join([splitter.feed(body[at : at + size]) for at in range(0, len(body), size)])
    return lines, bytes(splitter.rest)


@given(
    st.lists(VALUES, max_size=5),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUES, max_size=3),
    st.integers(1, 40),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
def test_elements_become_lines_whatever_the_pieces(
    elements: list[Any], others: dict[str, Any], size: int, indent: int | None, ascii_only: bool
) -> None:
    body = others | {"requests": elements} | {"after": 1}
    data = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode()

    lines, rest = split(data, size)

    assert [json.loads(line) for line in lines.split(b"\n")[:-1]] == elements
    assert parse(rest) == body | {"requests": [0] * len(elements)}


def test_the_bytes_of_an_element_stay() -> None:
    element = b'{ "b":1.0e+2 ,"a":"\\u00e9\\/ \xc3\xa9 ]},[{\\"", "n":[1,[2,{}]]  }'

    lines, rest = split(b'{"x":["requests"],"requests" : [ ' + element + b" ,\n" + element + b"]}", 7)

    assert lines == element + b" \n" + element + b"\n"
    assert rest == b'{"x":["requests"],"requests" : [0,0]}'


def test_a_line_break_between_tokens_is_no_end_of_line() -> None:
    lines, _ = split(b'{"requests":[{"a":\n 1,\r\n"b":2}]}')

    assert lines == b'{"a":\r 1,\r\r"b":2}\n'
    splitter = LineSplitter()
    assert list(splitter.feed(lines)) == [Line(1, 0, lines[:-1])]


def test_an_escaped_name_is_the_same_name() -> None:
    assert split(b'{"\\u0072equests":[1]}') == (b"1\n", b'{"\\u0072equests":[0]}')


@pytest.mark.parametrize(
    "body",
    [
        b'{"requests":[1,,2]}',
        b'{"requests":[1,]}',
        b'{"requests":[ , ]}',
        b'{"requests":[{"a":"\n"},}',
        b'{"requests":[1',
        b'{"requests":[1]',
        b'{"requests":["a]}',
        b'{"requests" [1]}',
        b'{"requests":[1],"requests":[2]}',
        b'{"requests":[1]}]',
        b"]]]]",
        b"",
    ],
)
def test_what_is_no_json_around_the_elements_is_no_json_in_the_rest(body: bytes) -> None:
    _, rest = split(body, 1)

    with pytest.raises(InvalidJson):
        parse(rest)


@pytest.mark.parametrize(
    "body", [b'{"a":{"requests":[1,2]}}', b'[{"requests":[1]}]', b'{"a":"requests","b":[1]}', b'["requests",[1]]']
)
def test_an_array_elsewhere_is_left_alone(body: bytes) -> None:
    assert split(body, 2) == (b"", body)


@given(st.binary(max_size=60))
def test_no_bytes_break_it(data: bytes) -> None:
    lines, rest = split(b'{"requests":[' + data)

    assert lines.count(b"\n") <= rest.count(b"0")
