"""Streams cut at the borders of events."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gateway.stream_ends import DoneMark, LastEvent
from api.gateway.whole_events import WholeEvents

STREAM = b': hello\r\n\r\ndata: {"a":1}\n\ndata: {"b":"data: [DONE]"}\r\n\r\ndata: [DONE]\n\n'


def fed(data: bytes, cuts: list[int]) -> tuple[list[bytes], WholeEvents]:
    events, given = WholeEvents(), []
    ends = sorted({*cuts, len(data)})
    for begin, end in zip([0, *ends], ends, strict=False):
        given.append(events.feed(data[begin:end]))
    return given, events


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_every_byte_passes_and_only_in_whole_events(cuts: list[int]) -> None:
    given, events = fed(STREAM, cuts)

    assert b"".join(given) == STREAM
    assert all(one.endswith((b"\n\n", b"\n\r\n")) for one in given if one)
    assert events.is_done


@given(st.integers(0, len(STREAM) - 1))
def test_what_breaks_leaves_no_half_event(end: int) -> None:
    given, events = fed(STREAM[:end], [])

    assert STREAM.startswith(b"".join(given))
    assert b"".join(given).endswith((b"\n\n", b"\n\r\n")) or not b"".join(given)
    assert not events.is_done


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_done_without_its_blank_line_ends_the_stream(end: bytes) -> None:
    events = WholeEvents()
    given = events.feed(b'data: {"a":1}\n\ndata: [DONE]' + end)

    assert (given, events.is_done) == (b'data: {"a":1}\n\n', False)
    assert (events.finish(), events.is_done) == (b"data: [DONE]" + end, True)


@pytest.mark.parametrize("rest", [b"", b'data: {"a', b'data: {"a":"[DONE]"}\n', b'data: {"a":1}\n'])
def test_another_end_is_none(rest: bytes) -> None:
    events = WholeEvents()
    events.feed(b'data: {"a":1}\n\n' + rest)

    assert (events.finish(), events.is_done) == (b"", False)


def test_an_event_without_end_is_not_kept() -> None:
    events = WholeEvents()
    piece = b"data: " + b"x" * (DoneMark.most_held // 2)

    assert [events.feed(piece), events.feed(piece), events.feed(b"y")] == [b"", piece + piece, b""]


RESPONSE = (
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"status":"queued"}}\n\n'
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","sequence_number":1,"delta":"{\\"type\\":\\"response.completed\\",\\"sequence_number\\":9}"}\n\n'
)


@pytest.mark.parametrize(
    "last", ['"response.completed"', '"response.failed"', '"response.incomplete"', '"error"', '"error", "param": null']
)
@given(cut=st.integers(0, len(RESPONSE)))
def test_a_response_ends_with_one_of_four_events(last: str, cut: int) -> None:
    events = WholeEvents(LastEvent())
    end = f'data: {{"sequence_number":2, "type": {last}}}\n\n'.encode()
    given = [events.feed(RESPONSE[:cut]), events.feed(RESPONSE[cut:])]

    assert not events.is_done
    given += [events.feed(end[:-1]), events.feed(end[-1:])]

    assert (b"".join(given), events.is_done) == (RESPONSE + end, True)


@pytest.mark.parametrize(
    "last",
    [
        b'data: {"type":"response.output_item.done","sequence_number":2,"item":{"type":"error"}}\n\n',
        b'data: {"type":"response.completed"\n\n',
        b'data: {"type":"response.completed","sequence_number":2}\n',
        b"data: [DONE]\n\n",
    ],
    ids=["an item of that type", "no JSON", "no blank line", "the mark of chats"],
)
def test_anything_else_ends_no_response(last: bytes) -> None:
    events = WholeEvents(LastEvent())
    events.feed(RESPONSE + last)

    assert (events.finish(), events.is_done) == (b"", False)


def test_the_error_of_a_response_goes_on_counting() -> None:
    events = WholeEvents(LastEvent())
    events.feed(RESPONSE + b'data: {"type":"response.output_text.delta","sequence_number":7}')

    name, data = events.end.broken().decode().strip().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "error",
        "code": "bad_upstream",
        "message": "The model server broke the stream off.",
        "param": None,
        "sequence_number": 2,
    }
