"""What a gateway tells of live traffic: first tokens as they come, the mean time between tokens of each answer at its end."""

from __future__ import annotations

import pytest

from api.gateway.figures import Live, Traffic


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_answers_mean_time_between_tokens_counts_once_at_its_end() -> None:
    clock = Clock()
    traffic = Traffic(clock, waiting=1)
    live = Live(traffic, is_stream=True, began_at=clock.now)
    for seconds in (0.5, 0.01, 0.01, 0.4):
        clock.now += seconds
        live.token()
    assert (traffic.running, traffic.waiting) == (1, 0)
    assert traffic.load().ttft_p99_seconds == pytest.approx(0.5)
    assert traffic.load().itl_p99_seconds is None

    live.end()

    assert (traffic.running, traffic.waiting) == (0, 0)
    assert traffic.load().itl_p99_seconds == pytest.approx(0.14)


def test_an_answer_of_one_piece_has_no_time_between_tokens() -> None:
    clock = Clock()
    traffic = Traffic(clock, waiting=1)
    live = Live(traffic, is_stream=True, began_at=clock.now)
    live.token()
    live.end()

    assert traffic.load().itl_p99_seconds is None
