"""HR-03: a minute of readings through the gate, second by second."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from scheduler.admission import Admit, EngineReading, GpuReading, Hold, LiveReading, Mode, OwnLoad, Readings
from scheduler.headroom import Headroom
from slackwater.explain import Reason
from tests.unit.headroom.readings import GPU, a_policy

TRACE = list(csv.DictReader(Path("tests/cases/HR-03-utilisation-trace.csv").read_text().splitlines()))
OWN_AT_THE_END = OwnLoad(mine=4)


def decisions(mode: Mode) -> list[Admit | Hold]:
    headroom, found = Headroom(a_policy(mode)), []
    for row in TRACE:
        running, waiting, busy = int(row["sync_inflight"]), int(row["sync_waiting"]), int(row["gpu_util"])
        own = OWN_AT_THE_END if "our own" in row["expected"] else OwnLoad()
        readings = Readings(
            EngineReading(0.1, running + own.total, waiting, 0.2),
            LiveReading(0.1, running, waiting),
            (GpuReading(GPU, 0.1, busy / 100 if busy >= 0 else None),),
            needs_live=True,
            declared_gpus=(GPU,),
        )
        found.append(headroom.decide(readings, own, float(row["t_s"])))
    return found


@pytest.mark.parametrize("mode", ["strict", "balanced"])
def test_the_column_of_decisions(mode: Mode) -> None:
    for row, decision in zip(TRACE, decisions(mode), strict=True):
        expected = row["expected"]
        if "unknown" in expected:
            assert isinstance(decision, Hold if mode == "strict" else Admit), row
        elif "hold-or-slow" in expected:
            assert isinstance(decision, Hold) or decision.slots < 16, row
        else:
            assert isinstance(decision, Hold if expected.startswith("hold") else Admit), row


def test_the_cool_down_says_so() -> None:
    decision = decisions("balanced")[4]

    assert isinstance(decision, Hold)
    assert decision.reason is Reason.LIVE_WAITING
    assert "quiet to go" in (decision.details or "")
