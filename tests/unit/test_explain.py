"""Whose turn it is within a tenant, and when it would be done: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.fairness import Place, rank
from slackwater.explain import Standing, ahead, seconds_to_completion


@st.composite
def lines(draw: st.DrawFn) -> list[Standing]:
    """Batches of one tenant and one model."""
    n = draw(st.integers(1, 8))
    return [
        Standing(
            batch_id=number,
            models=frozenset({1}),
            priority=draw(st.integers(-2, 2)),
            seconds_left=draw(st.sampled_from([0.0, 5.0, 19.0, 21.0, 90.0])),
            window_seconds=100.0,
            remaining=draw(st.integers(1, 50)),
        )
        for number in draw(st.permutations(range(n)))
    ]


@given(lines())
def test_the_place_is_the_one_fairness_gives(line: list[Standing]) -> None:
    places = [Place(1, s.batch_id, 1, s.priority, 1, 0, s.seconds_left, s.window_seconds) for s in line]

    order = [place.batch_id for place in rank(places, since={})]

    assert [len(ahead(s, line)) for s in sorted(line, key=lambda s: order.index(s.batch_id))] == list(range(len(line)))


@given(lines(), st.floats(0.01, 100))
def test_the_last_is_done_when_all_is_done(line: list[Standing], rate: float) -> None:
    last = max(line, key=lambda s: s.turn)

    assert seconds_to_completion(last, line, {1: rate}) == pytest.approx(sum(s.remaining for s in line) / rate)


@pytest.mark.parametrize("rates", [{}, {2: 5.0}, {1: 0.0}])
def test_without_a_rate_of_its_own_models_nothing_is_guessed(rates: dict[int, float]) -> None:
    mine = Standing(1, frozenset({1}), 0, 50.0, 100.0, 10)

    assert seconds_to_completion(mine, [mine], rates) is None


def test_what_shares_no_model_is_not_ahead() -> None:
    mine = Standing(2, frozenset({1, 3}), 0, 50.0, 100.0, 10)
    other = Standing(1, frozenset({2}), 0, 50.0, 100.0, 10)
    shares = Standing(0, frozenset({2, 3}), 0, 50.0, 100.0, 10)

    assert ahead(mine, [mine, other, shares]) == [shares]
