from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.limits import Limits
from slackwater.reader.strict_json import InvalidJson, parse

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=30)


def refusal(data: bytes) -> InvalidJson:
    with pytest.raises(InvalidJson) as refused:
        parse(data)
    return refused.value


@given(value=VALUES, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_what_json_writes_is_read_back(value: object, ascii_only: bool, indent: int | None) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()) == value


@given(data=st.binary() | st.text(alphabet='{}[]",:\\u0123dDeE+-.NaIinfty \n\x00\ufeff').map(str.encode))
def test_nothing_but_invalid_json_is_ever_raised(data: bytes) -> None:
    with suppress(InvalidJson):
        assert parse(data) == json.loads(data)


@given(
    value=VALUES,
    codec=st.sampled_from(["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"]),
)
def test_only_utf8_without_a_mark_is_read(value: dict[str, Any], codec: str) -> None:
    assert refusal(json.dumps({"a": value}).encode(codec)).code == "invalid_unicode"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("{}".encode("utf-16"), "UTF-16"),
        ("{}".encode("utf-16-le"), "UTF-16"),
        ("{}".encode("utf-32-be"), "UTF-32"),
        ("{}".encode("utf-8-sig"), "byte order mark"),
    ],
)
def test_another_encoding_is_named(data: bytes, name: str) -> None:
    assert name in refusal(data).message


@pytest.mark.parametrize(
    ("data", "code", "pointer"),
    [
        (b'{"a":1,"a":2}', "duplicate_key", ""),
        (b'{"a":[{},{"b":{"c":1,"c":1}}]}', "duplicate_key", "/a/1/b"),
        (b'{"a/b~":{"c":1,"\\u0063":1}}', "duplicate_key", "/a~1b~0"),
        (b'{"a":["\\ud83d\\ude00","\\ud83d"]}', "invalid_unicode", "/a/1"),
        (b'{"a":"\\ude00\\ud83d"}', "invalid_unicode", "/a"),
        (b'{"a":{"\\uDfff":1}}', "invalid_unicode", "/a"),
        (b'"\\ud800"', "invalid_unicode", ""),
    ],
)
def test_a_refusal_points_at_its_place(data: bytes, code: str, pointer: str) -> None:
    refused = refusal(data)

    assert (refused.code, refused.pointer) == (code, pointer)


@pytest.mark.parametrize(
    ("data", "code", "column"),
    [
        (b'{"a":NaN}', "invalid_json", 6),
        (b'{"NaN":"Infinity","b":[1,-Infinity]}', "invalid_json", 26),
        (b'{"1e999":"1e999","b":-1e400}', "number_out_of_range", 22),
        (b"[1," + b"9" * 4301 + b"]", "number_out_of_range", 4),
        (b"[" + b"9" * 400 + b".5]", "number_out_of_range", 2),
        (b'{"a":1}}', "invalid_json", 8),
        (b'{"a":1,}', "invalid_json", 8),
        (b'"a\nb"', "invalid_json", 3),
        (b"[\n  1,\n  x]", "invalid_json", 3),
        (b"", "invalid_json", 1),
    ],
)
def test_a_refusal_has_its_column(data: bytes, code: str, column: int) -> None:
    refused = refusal(data)

    assert (refused.code, refused.column) == (code, column)


def test_a_byte_offset_counts_bytes() -> None:
    refused = refusal('{"é":x}'.encode())

    assert (refused.column, refused.offset) == (6, 6)
    assert refusal(b'{"\xc3\xa9":"\xff"}').offset == 7


@pytest.mark.parametrize("data", [b'"\\u0000"', b'"\\\\ud83d"', '"\ud7ff\ue000"'.encode(), b"1e-400", b"9" * 4300])
def test_odd_but_valid_texts_pass(data: bytes) -> None:
    assert parse(data) == json.loads(data)


@given(
    pieces=st.lists(
        st.sampled_from([r"\ud83d", r"\uDE00", r"\uDbff", r"\udC00", r"\u0041", r"\\", r"\n", "ud800", "\ud7ff", "é"])
    )
)
def test_half_of_a_surrogate_pair_is_refused_and_nothing_else(pieces: list[str]) -> None:
    data = f'{{"{"".join(pieces)}":"{"".join(reversed(pieces))}"}}'.encode()
    value = json.loads(data)

    if any("\ud800" <= character <= "\udfff" for text in [*value, *value.values()] for character in text):
        assert refusal(data).code == "invalid_unicode"
    else:
        assert parse(data) == value


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("depth", [101, 1_000, 200_000])
def test_nesting_beyond_the_limit_is_too_deep(opening: bytes, depth: int) -> None:
    closing = {b"[": b"]", b'{"a":': b"}", b'[{"a":': b"}]"}[opening]
    levels = depth // (2 if len(closing) == 2 else 1) + 1

    assert refusal(opening * levels + b"1" + closing * levels).code == "too_deep"


def test_the_deepest_allowed_nesting_passes() -> None:
    assert parse(b"[" * 100 + b"]" * 100)
    assert parse(b"[[]]", Limits(max_depth=2)) == [[]]
    with pytest.raises(InvalidJson):
        parse(b"[[[]]]", Limits(max_depth=2))


@given(secret=st.text("xyz", min_size=8, max_size=20), where=st.integers(0, 4))
def test_the_input_is_never_repeated(secret: str, where: int) -> None:
    texts = [f'["{secret}" {secret}]', f'"{secret}', f"{secret}", f'["{secret}",NaN]', f'"\\{secret}"']

    assert secret not in refusal(texts[where].encode()).message


@pytest.mark.parametrize("ending", ['"\\ud800"', "NaN", '{"a":1,"a":1}', "1e400"])
def test_in_a_large_text_the_fault_is_named_without_its_place(ending: str) -> None:
    refused = refusal(f"[{'1,' * (1 << 20)}{ending}]".encode())

    assert (refused.pointer, refused.column) == (None, None)


def test_a_pointer_is_cut() -> None:
    refused = refusal(json.dumps({"k" * 5000: {"l" * 5000: "\ud800"}}).encode())

    assert refused.pointer is not None
    assert len(refused.pointer) <= 200


def test_white_space_around_the_value_is_allowed() -> None:
    assert parse(b" \r\n\t5 \n") == 5
    assert refusal(b"\x0c5").code == "invalid_json"
