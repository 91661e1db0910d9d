"""When a delivery is tried again, and when it is not."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.webhooks.schedule import (
    GAPS,
    MAX_ATTEMPTS,
    Again,
    Decision,
    Delivered,
    Exhausted,
    Reply,
    Wish,
    decide,
    delay,
    retry_after,
    wish,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RNG = random.Random(7)


def test_ten_attempts_span_the_schedule_of_the_specification() -> None:
    assert MAX_ATTEMPTS == 10
    assert timedelta(seconds=sum(GAPS)) == timedelta(hours=75, minutes=35, seconds=5)


@given(attempts=st.integers(1, 9), seed=st.integers())
def test_a_gap_strays_by_at_most_a_fifth(attempts: int, seed: int) -> None:
    gap = GAPS[attempts - 1]

    assert 0.8 * gap <= delay(attempts, None, random.Random(seed)) <= 1.2 * gap


@given(attempts=st.integers(1, 9), asked=st.floats(0, 1e9))
def test_it_is_never_sooner_than_the_receiver_asked_up_to_a_day(attempts: int, asked: float) -> None:
    assert delay(attempts, asked, RNG) >= min(asked, 86_400)
    assert delay(attempts, asked, RNG) <= max(1.2 * GAPS[attempts - 1], 86_400)


@given(http=st.integers(200, 299), attempts=st.integers(1, 30))
def test_any_2xx_delivers(http: int, attempts: int) -> None:
    assert decide(Reply(http, None), attempts, RNG) == Decision(Delivered())


@given(attempts=st.integers(1, 9))
def test_a_failure_is_tried_again(attempts: int) -> None:
    assert isinstance(decide(Reply(500, "http_5xx"), attempts, RNG).delivery, Again)


@given(attempts=st.integers(10, 30))
def test_the_tenth_failure_exhausts(attempts: int) -> None:
    assert decide(Reply(None, "dns"), attempts, RNG).delivery == Exhausted("attempts_exhausted")


def test_gone_disables_the_endpoint_and_keeps_the_delivery() -> None:
    decision = decide(Reply(410, "gone"), 1, RNG)

    assert decision.disable == "gone"
    assert isinstance(decision.delivery, Again)


def test_a_receiver_may_disable_its_endpoint_or_abort_one_event() -> None:
    assert decide(Reply(200, None, wish=Wish.DISABLE), 1, RNG) == Decision(Delivered(), "asked_by_receiver")
    assert decide(Reply(500, "http_5xx", wish=Wish.ABORT), 1, RNG) == Decision(Exhausted("aborted_by_receiver"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Sun, 01 Mar 2026 12:01:30 GMT", 90.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", None),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 5000, 999_999_999.0),
        ("Sun, 99 Mar 2026 12:01:30 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}, NOW) == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("disable", Wish.DISABLE), (" Abort-Message ", Wish.ABORT), ("explode", None), ("", None)],
)
def test_unknown_wishes_are_ignored(text: str, expected: Wish | None) -> None:
    assert wish({"webhook-delivery": text}) is expected
