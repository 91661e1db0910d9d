from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.output_line import answer_line, error_line, read_answer
from slackwater.reader.strict_json import parse
from slackwater.reader.usage import UNKNOWN, Usage, usage_of

CASES = Path(__file__).parents[2] / "cases"


def line(body: bytes, status: int = 200) -> dict[str, Any]:
    written = answer_line("batch_req_1", "r\u20281", "req_1", read_answer(status, body))
    assert written.endswith(b"\n")
    assert len(written.decode().splitlines()) == 1
    value: dict[str, Any] = parse(written)
    return value


def test_the_line_has_the_published_shape() -> None:
    assert answer_line("batch_req_1", "a", "req_1", read_answer(200, b'{"x": 1.0}')) == (
        b'{"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"request_id":"req_1",'
        b'"body":{"x": 1.0}},"error":null}\n'
    )


def test_a_request_that_never_ran_has_no_response() -> None:
    written = error_line("batch_req_1", "é\u2028\n", "batch_expired", "Too late.")

    assert len(written.decode().splitlines()) == 1
    assert json.loads(written) == {
        "id": "batch_req_1",
        "custom_id": "é\u2028\n",
        "response": None,
        "error": {"code": "batch_expired", "message": "Too late."},
    }


@given(body=st.binary() | st.text().map(str.encode) | st.text('{}[]":,\\u0d8Na1e+ \r\n').map(str.encode))
def test_any_answer_becomes_one_strict_line(body: bytes) -> None:
    line(body)


JSON = st.recursive(
    st.none()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(value=JSON, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_valid_json_keeps_its_value_and_is_not_marked(value: object, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()

    response = line(body)["response"]

    assert response == {"status_code": 200, "request_id": "req_1", "body": value}


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b'{"b": 1.50,\r\n "a":1E+2, "a":2}', b'{"b": 1.50, "a":1E+2, "a":2}'),
        ('"a\u2028b\u2029c\u0085d\u00e9"'.encode(), '"a\\u2028b\\u2029c\\u0085d\u00e9"'.encode()),
        (b'"x\\u0000y\\ud83d\\ude00"', b'"x\\u0000y\\ud83d\\ude00"'),
        (b" [12345678901234567890] ", b" [12345678901234567890] "),
    ],
)
def test_the_bytes_of_valid_json_are_kept(body: bytes, kept: bytes) -> None:
    answer = read_answer(200, body)

    assert (answer.body, answer.reencoded) == (kept, False)


@pytest.mark.parametrize(
    ("body", "mended"),
    [
        (b'{"a":NaN,"b":-Infinity,"c":1e400}', {"a": None, "b": None, "c": None}),
        (b'{"a":"x\\ud83d"}', {"a": "x\ufffd"}),
        (b'{"a":"caf\xe9"}', {"a": "caf\ufffd"}),
        (b'{"a":"x\ny"}', {"a": "x\ny"}),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
    ],
)
def test_what_not_every_reader_takes_is_written_anew_and_marked(body: bytes, mended: object) -> None:
    response = line(body)["response"]

    assert response["body"] == mended
    assert response["slackwater"] == {"reencoded": True}


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b'{"a":', b"\x00", b"[" * 100_000])
@pytest.mark.parametrize(("status", "shown"), [(200, 502), (503, 503)])
def test_what_is_no_json_is_an_error(body: bytes, status: int, shown: int) -> None:
    response = line(body, status)["response"]

    assert (response["status_code"], response["body"]["error"]["code"]) == (shown, "bad_upstream")


def test_every_engine_output_of_the_cases_ends_as_one_line() -> None:
    """RS-01: separators, lone surrogate, NUL, cut JSON and tool calls: no result is lost by a character."""
    for case in json.loads((CASES / "RS-01-engine-outputs.json").read_bytes()):
        body = json.dumps(case, ensure_ascii=False).encode("utf-8", "surrogatepass")
        response = line(body)["response"]
        assert response["status_code"] == 200
        assert response["body"]["case"] == case["case"]


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}, Usage(9, 4, None)),
        ({"usage": {"prompt_tokens": 9, "total_tokens": 9}}, Usage(9, None, None)),
        (
            {
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 0},
                }
            },
            Usage(9, 4, 0),
        ),
        (
            {"usage": {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 8}}},
            Usage(9, 4, 8),
        ),
        (
            {
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 101},
                }
            },
            Usage(100, 5, 100),
        ),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": None}}, Usage(9, None, None)),
        ({"usage": {"prompt_tokens": True, "completion_tokens": -1}}, UNKNOWN),
        ({"usage": {"prompt_tokens": "9", "completion_tokens": 1 << 31}}, UNKNOWN),
        ({"usage": None}, UNKNOWN),
        ([], UNKNOWN),
    ],
)
def test_usage_is_what_the_engine_said(answer: object, usage: Usage) -> None:
    assert usage_of(answer) == usage
    assert read_answer(200, json.dumps(answer).encode()).usage == usage


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b"9" * 5000])
def test_an_unreadable_body_has_unknown_usage(body: bytes) -> None:
    assert read_answer(200, body).usage == UNKNOWN
