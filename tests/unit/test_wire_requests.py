"""Windows, names, ranges, chunks, forms and keys: the pure parts of the API."""

from __future__ import annotations

import itertools
import unicodedata
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.bodies import Pace
from api.multipart import Form, PartBegin, PartData, PartEnd, boundary_of
from slackwater.errors import InvalidRequest
from slackwater.storage.blobs import cut
from slackwater.storage.outputs import Index
from slackwater.tenancy.key_format import ALPHABET, PATTERN, digest_of, mint, public_id_of
from slackwater.wire.batch_request import UNITS, window_of
from slackwater.wire.errors import retry_headers
from slackwater.wire.files import LONGEST_NAME, display_name
from slackwater.wire.ranges import Span, Unsatisfiable, span_of


@given(st.integers(0, 10**9 - 1), st.sampled_from(sorted(UNITS)))
def test_a_window_is_from_a_second_to_thirty_days(n: int, unit: str) -> None:
    seconds = n * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]

    window = window_of(f"{n}{unit}")

    assert window == (timedelta(seconds=seconds) if 1 <= seconds <= 30 * 86_400 else None)


@pytest.mark.parametrize("text", ["", "h", "24", "24H", " 24h", "24h ", "24h\n", "+1h", "1.5h", "٣h", "1w"])
def test_anything_else_is_no_window(text: str) -> None:
    assert window_of(text) is None


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400))
def test_a_name_can_be_shown_anywhere(name: str) -> None:
    shown = display_name(name)

    assert 1 <= len(shown) <= LONGEST_NAME
    assert not {"/", "\\"} & set(shown)
    assert not any(unicodedata.category(c).startswith("C") for c in shown)
    assert shown not in (".", "..")


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60))
def test_a_range_is_what_slicing_gives(size: int, first: int, last: int) -> None:
    data = bytes(range(size))
    try:
        span = span_of(f"bytes={first}-{last}", size)
    except Unsatisfiable:
        assert first >= size
        return
    if span is None:
        assert last < first
        return
    assert data[span.start : span.stop] == data[first : last + 1]
    assert span.length > 0


@given(st.text(max_size=30), st.integers(0, 9))
def test_any_other_range_header_is_ignored_or_outside(header: str, size: int) -> None:
    try:
        span = span_of(header, size)
    except Unsatisfiable:
        return
    assert span is None or 0 <= span.start < span.stop <= size


@given(st.binary(max_size=200).map(lambda b: b.replace(b"\x01", b"\n")), st.integers(1, 20))
def test_chunks_make_up_the_whole_and_end_at_lines_where_they_can(data: bytes, most: int) -> None:
    rest, chunks = bytearray(data), []
    while rest:
        n = cut(rest, most)
        chunks.append(bytes(rest[:n]))
        del rest[:n]

    assert b"".join(chunks) == data
    for chunk in chunks[:-1]:
        assert 1 <= len(chunk) <= most
        assert chunk.endswith(b"\n") or b"\n" not in chunk


@given(st.lists(st.integers(1, 30), min_size=1, max_size=50), st.integers(1, 5), st.data())
def test_the_index_finds_a_line_at_or_before_any_byte(lengths: list[int], every: int, data: st.DataObject) -> None:
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    index = Index(sum(lengths), [n + 1 for n in range(0, len(lengths), every)], starts[::every])
    offset = data.draw(st.integers(0, sum(lengths) - 1))

    line, start = index.before(offset)

    assert start <= offset
    assert start == starts[line - 1]
    assert offset < sum(lengths[: line - 1 + every])


BODY = (
    b'--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--X\r\nContent-Disposition: form-data; name="file"; filename="a \xc3\xa9.jsonl"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n{}\r\n--\r\n\x00\r\n--X--\r\n"
)


@given(st.lists(st.integers(0, len(BODY)), max_size=30))
def test_a_form_reads_the_same_however_it_is_cut(cuts: list[int]) -> None:
    form, parts = Form(b"X"), []
    places = [0, *sorted(cuts), len(BODY)]
    for start, stop in itertools.pairwise(places):
        for event in form.feed(BODY[start:stop]):
            match event:
                case PartBegin():
                    parts.append((event.name, event.filename, b""))
                case PartData():
                    parts[-1] = (*parts[-1][:2], parts[-1][2] + event.data)
                case PartEnd():
                    pass
    form.close()

    assert parts == [("purpose", None, b"batch"), ("file", "a é.jsonl", b"{}\r\n--\r\n\x00")]


@given(st.binary(max_size=300))
def test_a_form_of_any_bytes_is_read_or_refused(data: bytes) -> None:
    """Bytes that are no form from the first one on cannot be closed; nothing but a refusal is ever raised."""

    def read() -> None:
        form = Form(b"X")
        form.feed(data)
        form.close()

    with pytest.raises(InvalidRequest) as caught:
        read()

    assert caught.value.code == "invalid_multipart"


@pytest.mark.parametrize(
    "text", ["", "multipart/form-data", "text/plain; boundary=X", "multipart/form-data; boundary="]
)
def test_a_content_type_without_a_boundary_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        boundary_of(text)


def test_a_boundary_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Form(b"b" * 5000)


def test_keys_are_recognised_by_their_checksum() -> None:
    minted = mint()

    assert PATTERN.fullmatch(minted.text)
    assert public_id_of(minted.text) == minted.public_id
    assert minted.digest == digest_of(minted.text)
    assert mint().text != minted.text


@given(st.integers(0, 70), st.sampled_from(ALPHABET))
def test_a_mistyped_key_is_none(place: int, letter: str) -> None:
    text = mint().text
    typed = text[: place % len(text)] + letter + text[place % len(text) + 1 :]

    assert (public_id_of(typed) is None) == (typed != text)


@given(st.text(max_size=100))
def test_no_other_text_is_a_key(text: str) -> None:
    assert public_id_of(text) is None


def test_a_pace_is_measured_over_what_was_waited_for() -> None:
    slow, fast = Pace(1.0), Pace(1.0)

    assert [slow.is_too_slow(0.25, 100) for _ in range(4)] == [False, False, False, True]
    assert not any(fast.is_too_slow(0.25, 300) for _ in range(40))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_refusal_says_whether_trying_again_helps(status: int) -> None:
    assert retry_headers(status, retryable=False) == {"x-should-retry": "false"}
    assert 0 < int(retry_headers(status, retryable=True)["retry-after"]) <= 60


def test_a_span_knows_its_length() -> None:
    assert Span(2, 5).length == 3
