"""HR-01: what the GPU does not tell is unknown, neither idle nor busy, and never opens the gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.admission import Admit, Hold, Readings
from scheduler.headroom import Headroom
from slackwater.explain import Reason
from tests.unit.headroom.readings import IDLE, a_policy, a_reading

CASES = json.loads(Path("tests/cases/HR-01-nvml-faults.json").read_text())["reader faults"]
LOST = "GPU_IS_LOST"


def read(call: str, error: str) -> Readings:
    """What the sampler hands on for a fault."""
    if error == LOST:
        return a_reading(busy=None, state="lost")
    if call == "getMemoryInfo":
        return a_reading(gpu_age=20.0)
    if call == "nvmlInit":
        return a_reading(busy=None, gpu_age=float("inf"))
    return a_reading(busy=None)


@pytest.mark.parametrize(("call", "error"), CASES)
def test_an_unknown_gpu_holds_in_strict(call: str, error: str) -> None:
    decision = Headroom(a_policy("strict")).decide(read(call, error), IDLE, 10.0)

    assert isinstance(decision, Hold)
    assert decision.reason is Reason.NO_SIGNAL
    assert decision.details is not None
    assert "GPU-1" in decision.details


@pytest.mark.parametrize(("call", "error"), CASES)
def test_an_unknown_gpu_runs_in_balanced_unless_it_is_lost(call: str, error: str) -> None:
    decision = Headroom(a_policy("balanced")).decide(read(call, error), IDLE, 10.0)

    assert isinstance(decision, Hold if error == LOST else Admit)


def test_a_lost_gpu_hands_back_what_has_not_started() -> None:
    decision = Headroom(a_policy()).decide(a_reading(state="lost"), IDLE, 10.0)

    assert isinstance(decision, Hold)
    assert decision.hand_back


@pytest.mark.parametrize(("age", "hand_back"), [(1.01, False), (4.9, False), (5.1, True), (float("inf"), True)])
@pytest.mark.parametrize("signal", ["engine_age", "live_age"])
def test_a_stale_signal_holds_and_a_lost_one_hands_back(signal: str, age: float, hand_back: bool) -> None:
    decision = Headroom(a_policy()).decide(a_reading(**{signal: age}), IDLE, 10.0)  # type: ignore[arg-type]

    assert isinstance(decision, Hold)
    assert decision.reason is Reason.NO_SIGNAL
    assert decision.hand_back is hand_back


@pytest.mark.parametrize("age", [float("nan"), -1.0])
def test_an_age_that_is_none_is_no_age(age: float) -> None:
    assert isinstance(Headroom(a_policy()).decide(a_reading(engine_age=age), IDLE, 10.0), Hold)


def test_load_that_nothing_explains_holds_after_two_seconds() -> None:
    headroom = Headroom(a_policy())
    early = headroom.decide(a_reading(busy=0.9), IDLE, 10.0)
    late = headroom.decide(a_reading(busy=0.9), IDLE, 12.0)

    assert isinstance(early, Admit)
    assert isinstance(late, Hold)
    assert late.reason is Reason.FOREIGN_LOAD
