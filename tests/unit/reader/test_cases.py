"""The case files: small inputs that public fault reports boil down to, each with its right outcome."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from slackwater.reader.request_line import RequestLine
from slackwater.reader.strict_json import InvalidJson, parse
from slackwater.reader.validate import FileValidator

CASES = Path(__file__).parents[2] / "cases"
MODELS = {"tiny-chat": 1, "other-chat": 2, "tiny-embed": 3}


class Case(NamedTuple):
    """The lines of a file that run, and (line, code, param, part of the message) of the others."""

    file: str
    runs: list[int]
    errors: list[tuple[int | None, str, str | None, str]]
    endpoint: str = "/v1/chat/completions"


TABLE = [
    # Refused before any line runs; the error names line 3 and line 1.
    Case(
        "IN-01-duplicate-custom-id.jsonl",
        [1, 2],
        [(3, "duplicate_custom_id", "custom_id", "Line 3 has the same custom_id as line 1.")],
    ),
    # One broken line is named with its column; the good lines could run.
    Case("IN-02-one-broken-line.jsonl", [1, 3], [(2, "invalid_json_line", None, "column 105")]),
    # Accepted; total 3, physical line numbers kept.
    Case("IN-03-crlf-blank-lines-no-final-newline.jsonl", [1, 3, 5], []),
    # Accepted; the byte order mark is dropped on line 1 only.
    Case("IN-04-utf8-bom.jsonl", [1, 2], []),
    # The lone surrogate is named by JSON pointer; the pair on line 2 runs.
    Case("IN-06-lone-surrogate.jsonl", [2], [(1, "invalid_unicode", None, "/body/messages/0/content")]),
    # NUL inside a body stays bytes.
    Case("IN-07-nul-escape.jsonl", [1, 2], []),
    # NaN and Infinity are no JSON, 1e400 is out of range; 0.5 is fine.
    Case(
        "IN-08-nonfinite-numbers.jsonl",
        [5],
        [
            (1, "invalid_json_line", None, "column 169"),
            (2, "invalid_json_line", None, "column 169"),
            (3, "invalid_json_line", None, "column 169"),
            (4, "number_out_of_range", None, "column 169"),
        ],
    ),
    # A trailing slash is another URL: refused, as is an absolute URL, which is never fetched.
    Case(
        "IN-09-url-and-method-mismatch.jsonl",
        [1],
        [
            (2, "invalid_url", "url", "does not match the batch endpoint"),
            (3, "invalid_method", "method", "must be POST"),
            (4, "missing_required_parameter", "method", "Missing required parameter: 'method'."),
            (5, "invalid_url", "url", "does not match the batch endpoint"),
            (6, "invalid_url", "url", "does not match the batch endpoint"),
        ],
    ),
    # Mixed models run as two groups under one batch.
    Case("IN-10-two-models-one-file.jsonl", [1, 2, 3], []),
    # stream: true is refused by name; false and absent are fine.
    Case(
        "IN-11-stream-true.jsonl",
        [2, 3],
        [
            (
                1,
                "streaming_unsupported",
                "body.stream",
                "Chat Completions: Streaming is not supported in the Batch API.",
            )
        ],
    ),
    # The error names line 2 and the byte offset.
    Case("IN-12-invalid-utf8.jsonl", [1], [(2, "invalid_unicode", None, "byte offset 135")]),
    # Line 1 is too deep and crashes nobody; the line after it runs.
    Case("IN-14-deep-nesting.jsonl", [2], [(1, "too_deep", None, "nested too deeply")]),
    # int, null, "", blanks, 513 bytes and missing are refused; paths, newlines and formulas are data.
    Case(
        "IN-15-custom-id-shapes.jsonl",
        [5, 6, 7, 9, 10, 11, 12, 13],
        [
            (1, "invalid_type", "custom_id", "an integer"),
            (2, "invalid_type", "custom_id", "null"),
            (3, "invalid_value", "custom_id", "blank"),
            (4, "invalid_value", "custom_id", "blank"),
            (8, "invalid_value", "custom_id", "512 bytes"),
            (14, "missing_required_parameter", "custom_id", "Missing required parameter: 'custom_id'."),
        ],
    ),
    Case("IN-16a-empty.jsonl", [], [(None, "empty_file", None, "no requests")]),
    Case("IN-16b-whitespace-only.jsonl", [], [(None, "empty_file", None, "no requests")]),
    # One error, not 32.
    Case(
        "IN-17-json-array-pretty.jsonl",
        [],
        [(1, "invalid_json_line", None, "This looks like a JSON array; send one object per line.")],
    ),
    Case("IN-19-schema-property-order.jsonl", [1], []),
    # Equal values and the new name alone are fine; different values, 0, negative, string, boolean are not.
    Case(
        "VE-01-both-token-limits.jsonl",
        [1, 3],
        [
            (2, "invalid_value", "body.max_completion_tokens", "differ"),
            (4, "invalid_value", "body.max_tokens", "at least 1"),
            (5, "invalid_value", "body.max_tokens", "at least 1"),
            (6, "invalid_type", "body.max_tokens", "a string"),
            (7, "invalid_type", "body.max_tokens", "a boolean"),
        ],
    ),
    # "hex", "" and [] are refused.
    Case(
        "RS-03-embeddings.jsonl",
        [1, 2, 3],
        [
            (4, "invalid_value", "body.encoding_format", "'float' or 'base64'"),
            (5, "invalid_value", "body.input", "empty"),
            (6, "invalid_value", "body.input", "empty"),
        ],
        endpoint="/v1/embeddings",
    ),
]


def read(data: bytes, endpoint: str, piece: int) -> tuple[list[RequestLine], FileValidator]:
    validator = FileValidator(endpoint, MODELS)
    requests = [
        request for start in range(0, len(data), piece) for request in validator.feed(data[start : start + piece])
    ]
    return requests + list(validator.finish()), validator


@pytest.mark.parametrize("piece", [7, 1 << 20])
@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.file[:5])
def test_the_case_has_its_outcome(case: Case, piece: int) -> None:
    requests, validator = read((CASES / case.file).read_bytes(), case.endpoint, piece)

    assert [request.line for request in requests] == case.runs
    assert [(error.line, error.code, error.param) for error in validator.errors] == [
        expected[:3] for expected in case.errors
    ]
    for error, expected in zip(validator.errors, case.errors, strict=True):
        assert expected[3] in error.message


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.file[:5])
def test_a_body_is_the_bytes_of_its_span(case: Case) -> None:
    data = (CASES / case.file).read_bytes()
    lines = data.split(b"\n")

    for request in read(data, case.endpoint, 64)[0]:
        body = data[request.body_start : request.body_start + request.body_length]
        assert lines[request.line - 1].rstrip(b"\r").endswith(b'"body":' + body + b"}")


def test_every_case_of_input_parsing_is_in_the_table() -> None:
    assert {path.name for path in CASES.glob("IN-*")} <= {case.file for case in TABLE}


def test_nfc_and_nfd_are_two_ids() -> None:
    requests, _ = read((CASES / "IN-15-custom-id-shapes.jsonl").read_bytes(), "/v1/chat/completions", 4096)

    assert {"caf\u00e9", "cafe\u0301"} <= {request.custom_id for request in requests}


@pytest.mark.parametrize(
    ("block", "code", "column", "pointer"),
    [
        (3, "invalid_json", 18, None),
        (4, "invalid_unicode", None, "/input_file_id/0"),
        (6, "too_deep", None, None),
        (7, "invalid_json", 1, None),
    ],
)
def test_hostile_request_bodies_are_refused_with_their_place(
    block: int, code: str, column: int | None, pointer: str | None
) -> None:
    """VE-06: with the framework's defaults NaN, a lone surrogate and deep nesting answer 500."""
    with pytest.raises(InvalidJson) as refused:
        parse(_request_bodies()[block])

    assert (refused.value.code, refused.value.column, refused.value.pointer) == (code, column, pointer)


@pytest.mark.parametrize("block", [0, 1, 2, 5])
def test_request_bodies_that_are_json_are_left_to_their_route(block: int) -> None:
    assert parse(_request_bodies()[block])["endpoint"]


def _request_bodies() -> list[bytes]:
    lines = (CASES / "VE-06-request-bodies.http.txt").read_bytes().splitlines()
    return [body for method, body in pairwise(lines) if method.startswith(b"POST ")]
