"""Streams cut at the borders of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gateway.whole_events import MOST_HELD, WholeEvents

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
    piece = b"data: " + b"x" * (MOST_HELD // 2)

    assert [events.feed(piece), events.feed(piece), events.feed(b"y")] == [b"", piece + piece, b""]
