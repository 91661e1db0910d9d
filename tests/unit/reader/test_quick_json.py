"""The quick way takes nothing that the strict one refuses, and reads the same of what it takes."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.limits import LIMITS
from slackwater.reader.quick_json import read_quickly
from slackwater.reader.strict_json import InvalidJson, parse

GOOD_NUMBERS = [
    *["0", "-0", "64", "0.5", "-0.0", "1e308", "1E+5", "1e-400", "1.797693134862315807e308"],
    *["18446744073709551615", "18446744073709551616", "-9223372036854775809"],
    *("1" * 400, "1" * 4300, "1." + "0" * 5000),
]
BAD_NUMBERS = [
    *[
        "NaN",
        "nan",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "1.7976931348623159e308",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "0x1",
        "1_000",
        "True",
    ],
    *("1" * 400 + ".5", "1" * 4301, "1" * 5000),
]
GOOD_STRINGS = [
    *[
        r'"a"',
        r'""',
        r'"\ud83d\ude00"',
        r'"\uD83D\uDE00"',
        r'"\u0000"',
        r'"\":"',
        r'"{[]}"',
        r'"\\"',
        r'"\/\b\f\n\r\t"',
    ],
    *('"\x7f"', '"é\u2028\u0085日😀"'),
]
BAD_STRINGS = [
    *[
        r'"\ud800"',
        r'"\udc00"',
        r'"\ud800\ud800"',
        r'"\ud800a"',
        r'"\ude00\ud83d"',
        r'"\uD800"',
        r'"\x"',
        r'"\u12g4"',
        r'"\u12"',
    ],
    *('"a\x01"', '"a\t"', '"a\n"', '"\x00"', "'a'", '"a', '"a""b"'),
]
GOOD_TEXTS = [
    *GOOD_NUMBERS, *GOOD_STRINGS, "null", "true", "false", "[]", "{}", " [1 ,\t2]\r", '{"a" : 1,"b":{"a":2}}',
    '[{"a":1},{"a":2}]', '{"a":1,"A":2,"":3," ":4}', r'{"\u0061":1,"b":2}', "[" * 99 + "]" * 99,
]  # fmt: skip
BAD_TEXTS = [
    *BAD_NUMBERS, *BAD_STRINGS, "", "[1,]", '{"a":1,}', "{,}", '{"a" 1}', "{1:2}", "{null:1}", "1 2", "1x", "1\x00", "1\x0b", "[1\u00a0]",
    "[/**/]", "\ufeff1", "[" * 100 + "]" * 100, "[" * 201 + "]" * 201, "[" * 100_000, '{"a":' * 100 + "1" + "}" * 100,
    '{"a":1,"a":1}', r'{"a":1,"\u0061":2}', '{"":1,"":1}', '[[{"x":{"a":1,"b":2,"a":3}}]]', '{"a" :1,"a": 1}', '{"é":1,"é":1}',
    r'{"é":1,"\u00e9":1}', '{"a":{},"b":1,"a":[]}', r'{"\ud800":1}', "{" + ",".join(f'"{n % 999}":0' for n in range(1000)) + "}",
]  # fmt: skip


def wrapped(text: str) -> bytes:
    return f'{{"value":{text}}}'.encode()


@pytest.mark.parametrize("text", GOOD_TEXTS, ids=lambda text: repr(text[:24]))
def test_what_is_good_is_taken_as_the_strict_reader_takes_it(text: str) -> None:
    quick = read_quickly(wrapped(text), LIMITS.max_depth)

    assert quick is not None
    assert repr(quick) == repr(parse(wrapped(text)))


@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda text: repr(text[:24]))
def test_what_the_strict_reader_refuses_is_not_taken(text: str) -> None:
    with pytest.raises(InvalidJson):
        parse(wrapped(text))

    assert read_quickly(wrapped(text), LIMITS.max_depth) is None


@pytest.mark.parametrize("string", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"])
@pytest.mark.parametrize(
    "around", [b'{"a":"%s"}', b'{"%s":1}', b'{"a":1%s}', b'{"a":1}%s', b'{"a":"' + b"x" * 99 + b'%s"}']
)
def test_bytes_that_are_not_utf_8_are_not_taken(string: bytes, around: bytes) -> None:
    with pytest.raises(InvalidJson):
        parse(around % string)

    assert read_quickly(around % string, LIMITS.max_depth) is None


@pytest.mark.parametrize("text", ["1", "null", "[]", '"a"'])
def test_only_an_object_is_taken(text: str) -> None:
    assert read_quickly(text.encode(), LIMITS.max_depth) is None


@given(
    number=st.floats()
    | st.integers(-(10**400), 10**400)
    | st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{1,3})?[eE][+-]?[0-9]{1,3}", fullmatch=True)
)
def test_the_same_numbers_are_taken(number: float | int | str) -> None:
    text = number if isinstance(number, str) else json.dumps(number)
    quick = read_quickly(wrapped(text), LIMITS.max_depth)
    try:
        value = parse(wrapped(text))["value"]
    except InvalidJson:
        assert quick is None
    else:
        assert quick is not None
        assert type(quick["value"]) is type(value)
        assert quick["value"] == value or math.isclose(quick["value"], value)
