"""The parts of the policy: hysteresis and ramp, the outer loop's bounds, the model of iterations, the feed, quiet times."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.admission import Admit, EngineReading, Hold, LiveReading, Objectives, OwnLoad, Policy, Readings
from scheduler.headroom import Headroom
from scheduler.headroom.feed import Feed
from scheduler.headroom.gate import COOL_SECONDS, MOMENT_SECONDS, Gate
from scheduler.headroom.iteration_model import IterationModel
from scheduler.headroom.objectives import QuietTimes
from scheduler.headroom.outer_loop import EVERY_SECONDS, LEAST, LEAST_BURDEN, LOWEST, MOST, MOST_BURDEN, OuterLoop
from scheduler.headroom.pace import LEAST as LEAST_PACE
from scheduler.headroom.pace import Pace
from scheduler.simulator.costs import costs
from slackwater.explain import Reason


def test_a_passing_wait_opens_at_once() -> None:
    gate = Gate()
    gate.close(1, 10.0)

    assert gate.cooling(10.25) == 0.0


def test_a_queue_needs_quiet_before_it_opens() -> None:
    gate = Gate()
    gate.close(3, 10.0)
    gate.close(3, 10.0 + MOMENT_SECONDS)

    assert gate.cooling(12.0) == COOL_SECONDS
    assert gate.cooling(12.0 + COOL_SECONDS - 0.25) > 0
    assert gate.cooling(12.0 + COOL_SECONDS) == 0.0


def test_a_wait_during_quiet_starts_it_again() -> None:
    gate = Gate()
    gate.close(3, 10.0)
    gate.close(3, 11.5)
    gate.cooling(12.0)
    gate.close(1, 13.5)

    assert gate.cooling(14.0) == COOL_SECONDS


@given(st.lists(st.integers(0, 64), min_size=1, max_size=40))
def test_slots_open_a_step_at_a_time_and_close_at_once(wanted: list[int]) -> None:
    gate, before = Gate(), 0
    for most in wanted:
        width = gate.widen(most, 0)
        assert width <= max(before * 1.15 + 1, 1)
        assert width <= most
        before = width


@given(
    st.lists(st.tuples(st.floats(0, 100), st.one_of(st.none(), st.floats(0, 50)), st.booleans()), max_size=60),
    st.booleans(),
)
def test_the_outer_loop_stays_within_bounds(moves: list[tuple[float, float | None, bool]], is_firm: bool) -> None:
    loop, now = OuterLoop(is_firm=is_firm), 0.0
    for seconds, pressure, queued in moves:
        now += seconds
        before = loop.share
        share = loop.move(pressure, now)
        if queued:
            loop.queued()
        assert (LEAST if is_firm else LOWEST) <= share <= MOST
        assert LEAST_BURDEN <= loop.burden <= MOST_BURDEN
        assert abs(share - before) <= 0.03 + 1e-9


def test_a_broken_objective_shrinks_the_target() -> None:
    loop = OuterLoop()
    shares = [loop.move(1.4, EVERY_SECONDS * i) for i in range(1, 8)]

    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < shares[0]


def test_the_floor_falls_while_an_objective_stays_broken_and_rises_again() -> None:
    loop = OuterLoop()
    for i in range(1, 60):
        loop.move(2.0, EVERY_SECONDS * i)

    assert loop.share == pytest.approx(LOWEST)
    for i in range(60, 200):
        loop.move(0.5, EVERY_SECONDS * i)
    assert loop.share == MOST
    assert loop.fallen == 0.0


@given(st.lists(st.tuples(st.floats(0, 30), st.one_of(st.none(), st.floats(0, 50)), st.floats(0, 5)), max_size=60))
def test_the_pace_stays_between_nearly_nothing_and_all(moves: list[tuple[float, float | None, float]]) -> None:
    pace, now = Pace(), 0.0
    for seconds, pressure, spent in moves:
        now += seconds
        pace.passes(now)
        pace.move(pressure, now)
        pace.spend(spent)
        assert LEAST_PACE <= pace.share <= 1.0


def test_reading_is_paid_back_at_the_share() -> None:
    pace = Pace(share=0.25)
    pace.passes(0.0)
    pace.spend(0.5)

    pace.passes(1.0)
    assert not pace.is_due
    pace.passes(1.9)
    assert not pace.is_due
    pace.passes(2.1)
    assert pace.is_due


def test_first_tokens_over_their_objective_slow_reading_down() -> None:
    pace = Pace()
    shares = []
    for i in range(1, 80):
        pace.move(1.5, 5.0 * i)
        shares.append(pace.share)

    assert shares == sorted(shares, reverse=True)
    assert pace.share == LEAST_PACE


def test_reading_for_nothing_stays_a_small_share_of_what_was_started() -> None:
    feed = Feed(spare=0.0)
    given_up = 0.0
    for i in range(400):
        feed.start(4000, 20.0 * i, 256)
        if feed.can_take_back(20.0 * i + 8):
            given_up += 8 * 256
            feed.taken_back(20.0 * i + 8)
    assert 0.0 < given_up <= 0.02 * 400 * 4000


def test_the_model_learns_the_engine() -> None:
    """Trained on what the cost tables say, it predicts iterations that it has not seen to within a tenth."""
    random, table, model = Random(1), costs(), IterationModel()

    def iteration() -> tuple[float, int, float, int, float]:
        n, kv, prompt = random.randint(1, 120), random.uniform(0.0, 0.6), random.choice([0, 128, 256, 512, 800])
        attention = prompt * random.uniform(0, 6000)
        ended = 1 if prompt else 0
        return table.iteration_ms(n, kv * 560_000, prompt, attention, ended), n, kv, prompt, attention

    for _ in range(3000):
        model.learn(*iteration())
    errors = sorted(
        abs(model.milliseconds(n, kv, p, a) / ms - 1) for ms, n, kv, p, a in (iteration() for _ in range(300))
    )

    assert errors[150] < 0.05
    assert errors[270] < 0.12


@given(
    st.lists(st.tuples(st.floats(-10, 1e5), st.integers(0, 300), st.floats(0, 1), st.integers(0, 9000)), max_size=80)
)
def test_no_measurement_makes_the_model_negative(seen: list[tuple[float, int, float, int]]) -> None:
    model = IterationModel()
    for ms, n, kv, prompt in seen:
        model.learn(ms, n, kv, prompt)
        assert 0 < model.milliseconds(n, kv, prompt) < 1e7


@given(st.floats(1, 200), st.integers(0, 300), st.floats(0, 1), st.integers(0, 30_000))
def test_room_is_what_fills_the_iteration(target: float, n: int, kv: float, past: int) -> None:
    model = IterationModel()
    base = model.milliseconds(n, kv, 0)
    tokens = model.room(target, base, n, past)
    if tokens > 0:
        filled = model.milliseconds(n, kv, tokens, tokens * past)
        assert filled == pytest.approx(target, rel=1e-6)


def test_what_a_prompt_overdraws_is_waited_off() -> None:
    feed = Feed()
    feed.fill(1000.0, 0.0)
    feed.fill(1000.0, 0.5)
    feed.start(2500, None, 256)
    feed.fill(1000.0, 1.5)

    assert feed.tokens == pytest.approx(500 - 2500 + 1000)


def test_prompts_are_being_read_until_the_cap_allows_their_end() -> None:
    feed = Feed()
    feed.start(1024, 100, 256)

    assert feed.prefilling(103) == 1
    assert feed.prefilling(104) == 0


def test_attention_grows_with_what_was_read() -> None:
    feed = Feed()
    feed.start(512, 0, 256)

    assert feed.attention(0, 1) == 256 * 128
    assert feed.attention(1, 2) == 256 * (256 + 128)


def test_objectives_come_from_quiet_times() -> None:
    quiet = QuietTimes()
    for tick in range(60):
        quiet.see(LiveReading(0.1, 1, 0, 0.4, 0.02), 0, tick * 0.25)

    assert quiet.objectives(Objectives()) == pytest.approx((0.51, 0.03))
    assert quiet.objectives(Objectives(2.0, 0.065)) == (2.0, 0.065)


def test_batch_work_teaches_nothing_about_quiet() -> None:
    quiet = QuietTimes()
    for tick in range(60):
        quiet.see(LiveReading(0.1, 1, 0, 0.4, 0.02), 5, tick * 0.25)

    assert quiet.ttft_seconds is None


def a_live_wait(kv: float) -> Readings:
    return Readings(EngineReading(0.0, 10, 3, kv), LiveReading(0.0, 4, 3), needs_live=True)


def test_the_ladder_stops_then_takes_back_what_has_no_token() -> None:
    headroom, own = Headroom(Policy(16)), OwnLoad(mine=6)
    first = headroom.decide(a_live_wait(0.5), own, 10.0)
    later = headroom.decide(a_live_wait(0.5), own, 14.5)

    assert first == Hold(Reason.LIVE_WAITING, "3 live requests are waiting")
    assert isinstance(later, Hold)
    assert (later.hand_back, later.cancel_unprefilled, later.cancel_decoding) == (True, True, 0)


def test_only_a_full_cache_cancels_what_decodes() -> None:
    decision = Headroom(Policy(16)).decide(a_live_wait(0.95), OwnLoad(mine=6), 10.0)

    assert isinstance(decision, Hold)
    assert decision.cancel_decoding == 2


def test_pressed_work_keeps_a_share_in_deadline_only() -> None:
    full = Readings(EngineReading(0.0, 40, 0, 0.5, 10, 1000), LiveReading(0.0, 40, 0), needs_live=True, pressed=True)
    found = {}
    for mode in ("balanced", "deadline"):
        headroom = Headroom(Policy(64, mode, objectives=Objectives(1.0, 0.02)))
        headroom.decide(full, OwnLoad(), 10.0)
        found[mode] = headroom.decide(full, OwnLoad(mine=1), 10.25)

    assert isinstance(found["balanced"], Hold)
    assert isinstance(found["deadline"], Admit)
    assert found["deadline"].slots == 6
