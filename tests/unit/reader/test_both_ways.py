"""A line that is read the quick way is read the same the long way; what the quick way does not take, the long way judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.body_rules import ENDPOINTS
from slackwater.reader.lines import Line, LineSplitter
from slackwater.reader.request_line import LineError, LineReader, RequestLine
from tests.unit.reader.test_quick_json import BAD_NUMBERS, BAD_STRINGS, GOOD_NUMBERS, GOOD_STRINGS

CASES = Path(__file__).parents[2] / "cases"
CHAT = "/v1/chat/completions"
MODELS = {"tiny-chat": 1, "other-chat": 2, "tiny-embed": 3}


class LongWay(LineReader):
    """Reads each line the long way."""

    def _usual(self, line: Line) -> RequestLine | None:
        return None


def both(data: bytes, endpoint: str = CHAT) -> tuple[RequestLine | LineError, RequestLine | LineError]:
    line = Line(3, 1000, data)
    return LineReader(endpoint, MODELS.get).read(line), LongWay(endpoint, MODELS.get).read(line)


def rarely(*others: str, usual: str = "") -> st.SearchStrategy[str]:
    return st.sampled_from([usual] * (6 * len(others)) + list(others))


GAPS = rarely(" ", "\t", "\r", "\n", "\u00a0", "\x0c")
KEYS = st.sampled_from(
    [
        '"a"',
        '"b"',
        r'"\u0061"',
        '"é"',
        '"max_tokens"',
        '"model"',
        '"messages"',
        '"stream"',
        '"body"',
        r'"a\":"',
        *GOOD_STRINGS,
    ]
)
LEAVES = st.one_of(
    *[st.sampled_from(GOOD_NUMBERS + GOOD_STRINGS + ["null", "true", "false"])] * 8,
    st.sampled_from(BAD_NUMBERS + BAD_STRINGS),
    st.integers(90, 105).map(lambda levels: "[" * levels + "]" * levels),
    st.text(max_size=9).map(json.dumps),
)


@st.composite
def members(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    drawn = draw(st.lists(st.tuples(KEYS, GAPS, GAPS, values, GAPS), max_size=4))
    return ",".join(f"{key}{before}:{after}{value}{end}" for key, before, after, value, end in drawn)


VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
        | members(inner).map(lambda each: f"{{{each}}}")
    ),
    max_leaves=8,
)
CUSTOM_IDS = st.sampled_from(
    [
        *("r1", "é", "日本", "a b", " ", "", " a", r"\u0061", r"a\"b", "a\x00b", r"a\u0000b", "\u2028", "\u00a0"),
        *("x" * 128, "x" * 129, "x" * 512, "x" * 513, "a" + "é" * 127, "aa" + "é" * 255, "aa" + "é" * 256),
    ]
)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    gap = draw(st.sampled_from(["", "", " ", "\t", "\r"]))
    others = draw(members(VALUES))
    body = f'{gap}{{"model":{gap}"tiny-chat",{gap}"messages"{gap}:[{draw(VALUES)}]{"," * bool(others)}{others}{draw(rarely(","))}{gap}}}'
    body = draw(rarely("null", "[]", "{}", draw(VALUES), usual=body))
    envelope = {
        "custom_id": f'"{draw(CUSTOM_IDS)}"',
        "method": draw(rarely('"GET"', usual='"POST"')),
        "url": draw(rarely('"/v1/embeddings"', usual=f'"{CHAT}"')),
        "body": body,
    }
    pairs = [f'"{name}"{gap}:{gap}{value}' for name, value in envelope.items()]
    pairs += draw(rarely('"x":1', '"body":{}', '"url":"a"', r'"\u0075rl":"a"')).split(maxsplit=1)
    if draw(rarely("swapped")):
        pairs.reverse()
    tail = draw(rarely(" ", "\r", "\t", "}", "x", ",", "{}", "\x00", "\u00a0", "\ufeff"))
    head = draw(rarely(" ", "\ufeff"))
    inside = f"{gap},{gap}".join(pairs)
    return f"{head}{{{gap}{inside}{gap}}}{tail}".encode("utf-8", "surrogatepass")


@given(
    data=lines(),
    at=st.integers(0, 400),
    piece=st.binary(max_size=2) | st.sampled_from([*map(str.encode, '{}[]",:\\ 0e')]),
    cut=st.integers(0, 2),
)
def test_a_line_is_read_the_same_both_ways_whatever_is_changed_in_it(
    data: bytes, at: int, piece: bytes, cut: int
) -> None:
    for changed in (data, data[:at] + piece + data[at + cut :]):
        usual, long = both(changed)

        assert usual == long


@given(data=lines())
def test_bytes_swapped_for_others_change_both_ways_alike(data: bytes) -> None:
    for old, new in (
        (b'"', b"'"),
        (b"\xc3", b"\xff"),
        (b"tiny", b"tin\\u0079"),
        (b"}", b"} "),
        (b":", b" : "),
        (b"a", b"\xed\xa0\x80"),
    ):
        usual, long = both(data.replace(old, new))

        assert usual == long


@pytest.mark.parametrize("path", sorted(CASES.glob("*.jsonl")), ids=lambda path: path.name[:5])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_each_line_of_a_case_is_read_the_same_both_ways(path: Path, endpoint: str) -> None:
    splitter = LineSplitter()
    for line in [*splitter.feed(path.read_bytes()), *splitter.finish()]:
        assert isinstance(line, Line)
        usual, long = both(line.data, endpoint)

        assert usual == long


@pytest.mark.parametrize("custom_id", ["r1", "né", "x" * 512, "x" + "é" * 255])
@pytest.mark.parametrize("tail", ["}}", "} } ", "}\t}\r"])
def test_a_usual_line_goes_no_long_way(custom_id: str, tail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        '{"model":"tiny-chat","messages":[{"role":"user","content":"é \\ud83d\\ude00"}],"temperature":0.2,"metadata":{}'
    )
    data = f'{{"custom_id": "{custom_id}", "method": "POST", "url": "{CHAT}", "body": {body}{tail}'.encode()
    expected = both(data)[1]

    monkeypatch.setattr(LineReader, "_long_way", None)

    assert LineReader(CHAT, MODELS.get).read(Line(3, 1000, data)) == expected
    assert isinstance(expected, RequestLine)
    assert data[expected.body_start - 1000 :][: expected.body_length].decode() == body + "}"
