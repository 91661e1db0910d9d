"""What follows from how a run ended: every row of the retry matrix, and what holds of any ending."""

from __future__ import annotations

import json
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.retry import MOST_DELAY_SECONDS, Again, Answered, Ended, Ending, Unanswered, Why, judge

MAX_ATTEMPTS = 3


def run(ending: Ending, *, attempts: int = 0, deferrals: int = 0, seed: int = 1) -> Ended | Again:
    return judge(ending, attempts=attempts, deferrals=deferrals, max_attempts=MAX_ATTEMPTS, random=Random(seed))


def error(status: int, code: object = None, **more: object) -> Answered:
    return Answered(status, json.dumps({"error": {"message": "no", "code": code} | more}).encode())


CAPACITY = [
    pytest.param(error(429), id="429 without header"),
    pytest.param(error(502), id="502"),
    pytest.param(error(503), id="503"),
    pytest.param(error(504), id="504"),
    pytest.param(error(529), id="529"),
    pytest.param(Answered(503, b"<html>upstream down</html>"), id="503 that is no JSON"),
    pytest.param(error(400, "3040"), id="400 with a capacity code"),
    pytest.param(error(400, 3040), id="400 with a capacity code as a number"),
    pytest.param(error(400, type="rate_limit_exceeded"), id="400 with a capacity type"),
    pytest.param(
        Answered(400, b'{"success":false,"errors":[{"code":3040,"message":"x"}]}'), id="400 with a list of errors"
    ),
    pytest.param(error(200, "server_overloaded"), id="200 with a capacity error"),
    pytest.param(Unanswered(Why.UNREACHABLE), id="connection refused"),
    pytest.param(Unanswered(Why.DROPPED), id="connection reset"),
    pytest.param(error(401, "invalid_api_key"), id="401"),
    pytest.param(error(404, "model_not_found"), id="404 model"),
]
BROKEN = [
    pytest.param(error(408), Why.TIMED_OUT, id="408"),
    pytest.param(Unanswered(Why.TIMED_OUT), Why.TIMED_OUT, id="timeout"),
    pytest.param(Unanswered(Why.BAD_UPSTREAM), Why.BAD_UPSTREAM, id="200 truncated"),
    pytest.param(Answered(200, b"not json"), Why.BAD_UPSTREAM, id="200 not JSON"),
    pytest.param(Answered(200, b"[1]"), Why.BAD_UPSTREAM, id="200 no object"),
    pytest.param(error(200, "invalid_prompt"), Why.BAD_UPSTREAM, id="200 with an error"),
    pytest.param(Answered(200, b'{"error":"boom"}'), Why.BAD_UPSTREAM, id="200 with an error text"),
    pytest.param(error(500), Why.SERVER_ERROR, id="500"),
]


def test_retry_after_is_waited_for() -> None:
    verdict = run(Answered(429, b"{}", retry_after_seconds=2.0))

    assert isinstance(verdict, Again)
    assert not verdict.burns
    assert 2.0 <= verdict.delay_seconds <= 2.4


@pytest.mark.parametrize("ending", CAPACITY)
@pytest.mark.parametrize("deferrals", [0, 5, 500])
def test_missing_capacity_burns_nothing(ending: Ending, deferrals: int) -> None:
    verdict = run(ending, attempts=MAX_ATTEMPTS - 1, deferrals=deferrals)

    assert isinstance(verdict, Again)
    assert not verdict.burns


@pytest.mark.parametrize("ending", CAPACITY)
def test_delays_grow_with_deferrals(ending: Ending) -> None:
    delays = [v.delay_seconds for n in range(10) if isinstance(v := run(ending, deferrals=n), Again)]

    assert delays == sorted(delays)
    assert len(delays) == 10
    assert delays[-1] > 30
    assert run(ending, deferrals=3, seed=1) != run(ending, deferrals=3, seed=2)


@pytest.mark.parametrize("status", [401, 404])
def test_what_every_line_would_meet_blames_the_instance(status: int) -> None:
    verdict = run(error(status))

    assert isinstance(verdict, Again)
    assert verdict.blames


@pytest.mark.parametrize(
    "ending", [error(400, "context_length_exceeded"), error(403, "policy"), error(413), error(422)]
)
def test_a_line_at_fault_is_final_at_once(ending: Answered) -> None:
    assert run(ending) == Ended(False, ending)


@pytest.mark.parametrize(("ending", "why"), BROKEN)
def test_a_broken_answer_burns_attempts_and_is_final_then(ending: Ending, why: Why) -> None:
    for attempts in range(MAX_ATTEMPTS - 1):
        verdict = run(ending, attempts=attempts)
        assert isinstance(verdict, Again)
        assert (verdict.burns, verdict.why) == (True, why)

    last = run(ending, attempts=MAX_ATTEMPTS - 1)

    assert isinstance(last, Ended)
    assert not last.succeeded


def test_the_last_error_says_what_went_wrong() -> None:
    last = MAX_ATTEMPTS - 1
    assert run(error(500), attempts=last) == Ended(False, error(500))
    for ending, code in ((Unanswered(Why.TIMED_OUT), "request_timeout"), (Answered(200, b"x"), "bad_upstream")):
        verdict = run(ending, attempts=last)
        assert isinstance(verdict, Ended)
        assert (verdict.answer, verdict.code) == (None, code)


def test_an_answer_succeeds() -> None:
    answer = Answered(200, b'{"error":null,"choices":[]}')
    assert run(answer) == Ended(True, answer)


@given(
    status=st.sampled_from([200, 400, 429, 503]) | st.integers(200, 599),
    body=st.one_of(
        st.binary(max_size=40), st.sampled_from([b"{}", b'{"error":{}}', b'{"error":{"code":[1]}}', b'{"errors":[3]}'])
    ),
    retry_after=st.one_of(st.none(), st.floats()),
    attempts=st.integers(0, 5),
    deferrals=st.integers(0, 30_000),
)
def test_every_ending_has_a_usable_verdict(
    status: int, body: bytes, retry_after: float | None, attempts: int, deferrals: int
) -> None:
    verdict = run(Answered(status, body, retry_after), attempts=attempts, deferrals=deferrals)

    if isinstance(verdict, Again):
        assert math.isfinite(verdict.delay_seconds)
        assert 0 <= verdict.delay_seconds <= 3600 * 1.2
        assert not verdict.burns or attempts + 1 < MAX_ATTEMPTS
        assert verdict.burns is False or verdict.delay_seconds <= MOST_DELAY_SECONDS * 1.2
    elif verdict.succeeded:
        assert 200 <= status < 300
        assert isinstance(json.loads(body), dict)
