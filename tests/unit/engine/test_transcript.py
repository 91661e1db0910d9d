"""Stop strings and characters may span tokens."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from workers.engine.transcript import Transcript


def fed(pieces: list[bytes], stops: list[str]) -> tuple[str, bool]:
    transcript = Transcript(stops)
    stopped = any(transcript.add(piece) for piece in pieces)
    return transcript.text(), stopped


@given(text=st.text(max_size=20), cuts=st.lists(st.integers(0, 80), max_size=6))
def test_text_is_the_same_however_it_was_cut_into_tokens(text: str, cuts: list[int]) -> None:
    whole = text.encode()
    bounds = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[start:end] for start, end in itertools.pairwise(bounds)]

    assert fed(pieces, []) == (text, False)


@given(text=st.text("abé", max_size=20), stop=st.text("abé", min_size=1, max_size=3))
def test_text_ends_before_the_first_stop_string(text: str, stop: str) -> None:
    pieces = [bytes([byte]) for byte in text.encode()]

    assert fed(pieces, [stop]) == (text.split(stop)[0], stop in text)


def test_the_earliest_of_several_stop_strings_cuts() -> None:
    assert fed([b"one two three"], ["three", "two"]) == ("one ", True)


def test_what_came_before_a_stop_is_not_searched_again() -> None:
    assert fed([b"ab", b"c"], ["bc", "zzzzzz"]) == ("a", True)


def test_an_unfinished_character_at_the_end_is_left_out() -> None:
    assert fed(["aé".encode()[:-1]], []) == ("a", False)


def test_bytes_that_are_no_character_are_marked() -> None:
    assert fed([b"a\xffb"], []) == ("a\ufffdb", False)
