"""What follows when a worker dies: nothing is lost, and nobody is blamed but who ran alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.deaths import Crash, Range, after_death


def test_the_first_death_gives_the_range_back_whole() -> None:
    assert after_death(64, 64, rescues=0, deaths=0, was_alone=False) == [Range(64, 64, 1, 0)]


def test_the_second_death_splits_the_range_into_singles() -> None:
    after = after_death(10, 3, rescues=1, deaths=0, was_alone=False)

    assert after == [Range(10, 1, 2, 0), Range(11, 1, 2, 0), Range(12, 1, 2, 0)]


def test_two_deaths_alone_are_a_crash() -> None:
    first = after_death(7, 1, rescues=2, deaths=0, was_alone=True)

    assert first == [Range(7, 1, 3, 1)]
    assert after_death(7, 1, rescues=3, deaths=1, was_alone=True) == Crash(7)


@given(
    first=st.integers(0, 50_000),
    n=st.integers(1, 64),
    rescues=st.integers(0, 50),
    deaths=st.integers(0, 1),
    alone=st.booleans(),
)
def test_no_position_is_lost_and_no_neighbour_blamed(
    first: int, n: int, rescues: int, deaths: int, alone: bool
) -> None:
    after = after_death(first, n, rescues=rescues, deaths=deaths, was_alone=alone)

    if isinstance(after, Crash):
        assert (n, alone, deaths, after.position) == (1, True, 1, first)
        return
    assert [p for r in after for p in range(r.first, r.first + r.n)] == list(range(first, first + n))
    assert {r.rescues for r in after} == {rescues + 1}
    assert {r.deaths for r in after} == {deaths + (alone and n == 1)}
    assert rescues < 1 or all(r.n == 1 for r in after)
