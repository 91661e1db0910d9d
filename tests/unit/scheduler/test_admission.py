"""May batch work run: never while live work waits, and never on a signal that is missing or stale."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.admission import (
    Admit,
    EngineReading,
    GpuReading,
    Hold,
    LiveReading,
    Mode,
    OwnLoad,
    Policy,
    Readings,
)
from scheduler.headroom import Headroom
from slackwater.explain import Reason

AGES = st.floats(0, 0.9) | st.floats(0, 20)
COUNTS = st.integers(0, 40)
MODES = get_args(Mode)
ENGINES = st.builds(EngineReading, AGES, st.none() | COUNTS, st.none() | COUNTS, st.none() | st.floats(0, 1))
GPUS = st.builds(
    GpuReading, st.sampled_from(["GPU-a", "GPU-b"]), AGES, st.none() | st.floats(0, 1), st.none() | st.floats(0, 1)
)
READINGS = st.builds(
    Readings,
    st.none() | ENGINES,
    st.none() | st.builds(LiveReading, AGES, COUNTS, COUNTS),
    st.lists(GPUS, max_size=2).map(tuple),
    st.booleans(),
    st.sampled_from([(), ("GPU-a",), ("GPU-a", "GPU-b")]),
    st.booleans(),
)
POLICIES = st.builds(Policy, st.integers(1, 64), st.sampled_from(MODES))
OWN = st.builds(OwnLoad, COUNTS, COUNTS)
FRESH = Readings(EngineReading(0.1, 0, 0, 0.0), LiveReading(0.1), (GpuReading("GPU-a", 0.1, 0.0),), True, ("GPU-a",))


def admit(readings: Readings, policy: Policy, own: OwnLoad) -> Admit | Hold:
    """The first decision of a worker that has just begun."""
    return Headroom(policy).decide(readings, own, 100.0)


def decide(readings: Readings, mode: Mode = "balanced", own: OwnLoad | None = None) -> Admit | Hold:
    return admit(readings, Policy(16, mode), own or OwnLoad())


@given(READINGS, POLICIES, OWN)
def test_it_admits_only_on_fresh_required_signals(readings: Readings, policy: Policy, own: OwnLoad) -> None:
    if isinstance(admit(readings, policy, own), Hold):
        return

    assert readings.engine is not None
    assert readings.engine.age_seconds <= policy.max_age_seconds
    if readings.needs_live:
        assert readings.live is not None
        assert readings.live.age_seconds <= policy.max_age_seconds
    if policy.mode == "strict":
        told = {g.uuid for g in readings.gpus if g.busy_ratio is not None and g.age_seconds <= policy.max_age_seconds}
        assert set(readings.declared_gpus) <= told
    assert not readings.paused


@given(READINGS, POLICIES, OWN)
def test_it_never_admits_while_live_work_waits(readings: Readings, policy: Policy, own: OwnLoad) -> None:
    if readings.live and readings.live.waiting:
        assert isinstance(admit(readings, policy, own), Hold)


@given(READINGS, POLICIES, OWN)
def test_slots_leave_room_for_all_others(readings: Readings, policy: Policy, own: OwnLoad) -> None:
    decision = admit(readings, policy, own)
    if isinstance(decision, Hold):
        return

    live = readings.live.running if readings.live else 0
    assert 0 < decision.slots <= policy.max_slots - own.others - live
    assert policy.mode != "strict" or live == 0


@given(READINGS, POLICIES, OWN)
def test_more_live_work_never_gives_more_slots(readings: Readings, policy: Policy, own: OwnLoad) -> None:
    busier = replace(readings.live, running=readings.live.running + 1) if readings.live else None
    less, more = admit(replace(readings, live=busier), policy, own), admit(readings, policy, own)

    assert slots(less) <= slots(more)


def slots(decision: Admit | Hold) -> int:
    return decision.slots if isinstance(decision, Admit) else 0


@pytest.mark.parametrize(
    ("readings", "hands_back"),
    [
        (replace(FRESH, engine=None), True),
        (replace(FRESH, engine=EngineReading(1.5, 0, 0)), False),
        (replace(FRESH, engine=EngineReading(5.5, 0, 0)), True),
        (replace(FRESH, live=None), True),
        (replace(FRESH, live=LiveReading(1.5)), False),
        (replace(FRESH, live=LiveReading(5.5)), True),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_stale_signal_holds_and_a_lost_one_hands_back(readings: Readings, hands_back: bool, mode: Mode) -> None:
    decision = decide(readings, mode)

    assert isinstance(decision, Hold)
    assert (decision.reason, decision.hand_back) == (Reason.NO_SIGNAL, hands_back)


@pytest.mark.parametrize("gpus", [(), (GpuReading("GPU-a", 60.0, 0.1),), (GpuReading("GPU-a", 0.1, None),)])
def test_without_nvml_only_strict_holds(gpus: tuple[GpuReading, ...]) -> None:
    readings = replace(FRESH, gpus=gpus)

    assert isinstance(decide(readings, "balanced"), Admit)
    assert isinstance(decide(readings, "deadline"), Admit)
    held = decide(readings, "strict")
    assert isinstance(held, Hold)
    assert held.reason is Reason.NO_SIGNAL


def test_each_hold_says_why() -> None:
    busy = replace(FRESH, live=LiveReading(0.1, running=3))
    assert slots(decide(FRESH, "strict")) == 16
    assert 0 < slots(decide(busy)) <= 13
    reasons = {
        Reason.LIVE_WAITING: decide(replace(FRESH, live=LiveReading(0.1, waiting=1))),
        Reason.LIVE_RUNNING: decide(busy, "strict"),
        Reason.FULL: decide(busy, own=OwnLoad(others=13)),
        Reason.MODEL_PAUSED: decide(replace(FRESH, paused=True)),
    }
    assert all(isinstance(d, Hold) and d.reason is reason for reason, d in reasons.items())


def test_our_own_requests_are_not_taken_for_live_ones() -> None:
    engine = EngineReading(0.1, running=6, waiting=2)

    assert slots(decide(replace(FRESH, engine=engine), "strict", OwnLoad(mine=5, others=3))) == 13
    stranger = decide(replace(FRESH, engine=engine), "strict", OwnLoad(mine=4, others=2))
    assert isinstance(stranger, Hold)
    assert stranger.reason is Reason.LIVE_WAITING
