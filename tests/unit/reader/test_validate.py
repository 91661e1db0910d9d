from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.limits import Limits
from slackwater.reader.request_line import LineError
from slackwater.reader.validate import FileValidator

CHAT = "/v1/chat/completions"


def line(custom_id: str, model: str = "tiny-chat", content: str = "hi", url: str = CHAT) -> bytes:
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode() + b"\n"


def validated(data: bytes, limits: Limits | None = None) -> tuple[list[str], FileValidator]:
    validator = FileValidator(CHAT, {"tiny-chat": 1}, limits or Limits())
    requests = [*validator.feed(data), *validator.finish()]
    return [request.custom_id for request in requests], validator


@given(good=st.lists(st.booleans(), min_size=1, max_size=30), piece=st.integers(1, 500))
def test_every_line_is_a_request_or_has_one_error(good: list[bool], piece: int) -> None:
    data = b"".join(line(str(number)) if fine else b"{]\n" for number, fine in enumerate(good))
    validator = FileValidator(CHAT, {"tiny-chat": 1})

    lines = [found.line for at in range(0, len(data), piece) for found in validator.feed(data[at : at + piece])]
    lines += [found.line for found in validator.finish()]

    assert lines == [number for number, fine in enumerate(good, 1) if fine]
    assert [error.line for error in validator.errors] == [n for n, fine in enumerate(good, 1) if not fine]
    assert validator.total == len(good)


def test_errors_are_capped_but_counted_and_told() -> None:
    told: list[LineError] = []
    validator = FileValidator(CHAT, {}, Limits(max_kept_errors=2), on_error=told.append)

    assert [*validator.feed(b"x\n" * 5), *validator.finish()] == []
    assert [error.line for error in told] == [1, 2, 3, 4, 5]
    data = validator.errors_data()
    assert [entry["line"] for entry in data] == [1, 2, None]
    assert data[-1]["message"] == "… and 3 more."
    assert all(set(entry) == {"code", "line", "param", "message"} for entry in data)


def test_a_refused_line_still_owns_its_custom_id() -> None:
    """Both files of a batch together name every custom_id once, also when bad lines are skipped."""
    requests, validator = validated(line("a", model="gone") + line("b") + line("a"))

    assert requests == ["b"]
    assert [(error.code, error.line) for error in validator.errors] == [
        ("model_not_found", 1),
        ("duplicate_custom_id", 3),
    ]


@pytest.mark.parametrize("custom_id", ["short", "l" * 400, "é" * 200])
def test_ids_of_any_length_are_compared_whole(custom_id: str) -> None:
    requests, validator = validated(line(custom_id) + line(custom_id + "x") + line(custom_id))

    assert requests == [custom_id, custom_id + "x"]
    assert validator.errors[0].message == "Line 3 has the same custom_id as line 1."


def test_many_long_ids_are_told_apart() -> None:
    ids = [f"{number:0>300}" for number in range(600)]

    assert validated(b"".join(map(line, ids)))[0] == ids


def test_reading_stops_after_the_allowed_number() -> None:
    requests, validator = validated(b"".join(line(str(n)) for n in range(9)), Limits(max_requests=4))

    assert requests == ["0", "1", "2", "3"]
    assert [(error.code, error.line) for error in validator.errors] == [("too_many_requests_in_batch", 5)]
    assert validator.fatal
    assert list(validator.feed(line("z"))) == []
    assert validator.error_count == 1


def test_a_long_line_is_refused_and_the_rest_read() -> None:
    requests, validator = validated(line("a", content="x" * 999) + line("b"), Limits(max_line_bytes=500))

    assert requests == ["b"]
    assert [(error.code, error.line) for error in validator.errors] == [("line_too_long", 1)]


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_in_another_encoding_has_one_error(codec: str) -> None:
    _, validator = validated((line("a") + line("b")).decode().encode(codec))

    assert [(error.code, error.line) for error in validator.errors] == [("invalid_unicode", 1)]
    assert validator.errors[0].message.startswith("The file is UTF-")


@pytest.mark.parametrize("array", [b'[{"a":1},\n{"a":2}]', b"[\n{}\n]", b'[{"a":1}]', b"\n \n [\n"])
def test_an_array_has_one_error(array: bytes) -> None:
    _, validator = validated(array)

    assert [error.code for error in validator.errors] == ["invalid_json_line"]


def test_models_may_be_looked_up_by_a_function() -> None:
    validator = FileValidator(CHAT, lambda name: len(name) if name.startswith("m") else None)

    found = [*validator.feed(line("a", "mini") + line("b", "other")), *validator.finish()]

    assert [(request.model, request.model_id) for request in found] == [("mini", 4)]


def test_an_unknown_model_name_is_cut_in_its_error() -> None:
    _, validator = validated(line("a", model="m" * 10_000))

    assert len(validator.errors[0].message) < 200


def test_memory_does_not_grow_with_the_bytes() -> None:
    validator = FileValidator(CHAT, {"tiny-chat": 1})
    piece = b"".join(line(f"a{n}", content="x" * 100_000) for n in range(5))
    tracemalloc.start()
    for number in range(40):
        assert len(list(validator.feed(piece.replace(b'"a', b'"%d-' % number)))) == 5
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 6 * len(piece)
