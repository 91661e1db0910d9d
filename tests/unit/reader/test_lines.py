from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.lines import BOM, Line, LineSplitter, LongLine

FILES = st.binary() | st.lists(
    st.sampled_from([b"\n", b"\r", b" ", b"\t", b"a", b"bcd", b"{}", "\u2028".encode(), BOM, b"\x0c", b"e" * 9])
).map(b"".join)


def split(pieces: list[bytes], limit: int = 1 << 20) -> list[Line | LongLine]:
    splitter = LineSplitter(limit)
    return [line for piece in pieces for line in splitter.feed(piece)] + list(splitter.finish())


def expected(data: bytes, limit: int) -> list[Line | LongLine]:
    """The same by the plainest means, with the whole file in memory."""
    lines: list[Line | LongLine] = []
    start = 0
    *ended, last = data.split(b"\n")
    for number, raw in enumerate([*ended, last], 1):
        bom = 3 if number == 1 and raw.startswith(BOM) else 0
        line = raw[bom:].removesuffix(b"\r") if number <= len(ended) else raw[bom:]
        if len(line) > limit and raw.strip(b" \t\r"):
            lines.append(LongLine(number, start + bom))
        elif line.strip(b" \t\r"):
            lines.append(Line(number, start + bom, line))
        start += len(raw) + 1
    return lines


@given(data=FILES, cuts=st.lists(st.integers(0, 40)), limit=st.integers(1, 12))
def test_any_cutting_gives_the_same_lines(data: bytes, cuts: list[int], limit: int) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in pairwise(edges)]

    assert split(pieces, limit) == expected(data, limit)
    assert split([bytes([byte]) for byte in data], limit) == expected(data, limit)


def test_a_lone_cr_and_a_line_separator_are_data() -> None:
    data = "a\rb\u2028c\u0085d\r\ne".encode()

    assert split([data]) == [Line(1, 0, "a\rb\u2028c\u0085d".encode()), Line(2, 12, b"e")]


def test_the_mark_is_dropped_on_the_first_line_only() -> None:
    assert split([BOM[:2], BOM[2:] + b"a\n" + BOM + b"b"]) == [Line(1, 3, b"a"), Line(2, 5, BOM + b"b")]


def test_a_cr_before_the_lf_goes_with_it() -> None:
    assert split([b"a\r\nb\r\nc\r\r\n"]) == [Line(1, 0, b"a"), Line(2, 3, b"b"), Line(3, 6, b"c\r")]


def test_a_blank_line_may_have_any_length() -> None:
    pieces = [b"a", b"\n   ", b" " * 100, b"\nb", b"\n"]

    assert split(pieces, 10) == [Line(1, 0, b"a"), Line(3, 106, b"b")]


def test_a_long_line_is_named_and_the_next_one_read() -> None:
    pieces = [b"x\n", *[b"y" * 1000] * 50, b"\nz"]

    assert split(pieces, 10_000) == [Line(1, 0, b"x"), LongLine(2, 2), Line(3, 50_003, b"z")]


def test_a_line_of_exactly_the_limit_passes() -> None:
    data = BOM + b"12345\r\n12345\r\n123456\n"
    lines = [Line(1, 3, b"12345"), Line(2, 10, b"12345"), LongLine(3, 17)]

    assert split([data], 5) == lines
    assert split([bytes([byte]) for byte in data], 5) == lines


def test_blank_lines_are_counted_wherever_they_are() -> None:
    assert split([b"\n" * 70_000 + b"a"]) == [Line(70_001, 70_000, b"a")]
