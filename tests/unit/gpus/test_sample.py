"""Samples on the pipe and as readings: what is unknown stays unknown."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.admission import Admit, EngineReading, GpuReading, Hold, Mode, OwnLoad, Policy, Readings
from scheduler.headroom import Headroom
from slackwater.errors import Misconfigured
from slackwater.explain import Reason
from workers.gpus.binding import check_binding
from workers.gpus.reading import reading_of
from workers.gpus.sample import GpuSample, GpuState, Outage, decode, encode, ratio
from workers.gpus.sampler import Patience

A_RATIO = st.none() | st.floats(0, 1)
BYTES = st.none() | st.integers(0, 1 << 40)
SAMPLES = st.builds(
    GpuSample,
    declared=st.text(min_size=1),
    at=st.floats(0, 1e9),
    state=st.sampled_from(GpuState),
    uuid=st.none() | st.text(),
    busy_ratio=A_RATIO,
    memory_used_bytes=BYTES,
    memory_total_bytes=BYTES,
    processes=st.none() | st.integers(0, 100),
    sm_ratio=A_RATIO,
    mig_instances=st.lists(st.text()).map(tuple),
    missing=st.dictionaries(st.text(), st.text()),
)


@given(samples=st.lists(SAMPLES, max_size=3).map(tuple))
def test_a_line_gives_back_what_was_said(samples: tuple[GpuSample, ...]) -> None:
    line = encode(samples)

    assert line.count(b"\n") == 1
    assert decode(line) == samples


def test_an_outage_too() -> None:
    assert decode(encode(Outage("UNKNOWN", "power"))) == Outage("UNKNOWN", "power")


@given(sample=SAMPLES, later=st.floats(0, 1e6))
def test_what_is_unknown_is_unknown_to_admission(sample: GpuSample, later: float) -> None:
    reading = reading_of(sample, sample.at + later)

    assert (reading.busy_ratio, reading.sm_ratio, reading.processes) == (
        sample.busy_ratio,
        sample.sm_ratio,
        sample.processes,
    )
    assert (reading.memory_used_ratio is None) == (sample.memory_used_bytes is None or not sample.memory_total_bytes)
    assert reading.age_seconds == pytest.approx(later, abs=1e-3)


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(0, 0.0), (42, 0.42), (100, 1.0), (100.02, 1.0), (-1, None), (102, None), (4294967295, None), (math.nan, None)],
)
def test_a_percentage_that_is_none_is_unknown(percent: float, expected: float | None) -> None:
    assert ratio(percent) == expected


@pytest.mark.parametrize("mode", ["strict", "balanced", "deadline"])
def test_a_lost_gpu_holds_and_hands_back(mode: Mode) -> None:
    gpus = (GpuReading("GPU-a", 0.1, 0.0), GpuReading("GPU-b", 0.1, state="lost", why="gpu: GPU_IS_LOST"))
    readings = Readings(EngineReading(0.1, 0, 0), None, gpus, declared_gpus=("GPU-a", "GPU-b"))

    held = Headroom(Policy(4, mode)).decide(readings, OwnLoad(), 0.0)

    assert held == Hold(Reason.NO_SIGNAL, "GPU GPU-b is lost (gpu: GPU_IS_LOST)", hand_back=True)
    alone = Readings(readings.engine, None, gpus[:1])
    assert isinstance(Headroom(Policy(4, mode)).decide(alone, OwnLoad(), 0.0), Admit)


def test_restarts_grow_rarer_up_to_a_limit() -> None:
    waits = [Patience().before_restart(failures) for failures in (1, 2, 3, 5, 6, 1000)]

    assert waits == [0.5, 1.0, 2.0, 8.0, 10.0, 10.0]


def test_the_old_distribution_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("")

    with pytest.raises(Misconfigured, match="`pynvml` shadows `nvidia-ml-py`"):
        check_binding([str(tmp_path)])


def test_a_missing_binding_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="`nvidia-ml-py` is not installed"):
        check_binding([str(tmp_path)])


def test_the_installed_binding_is_accepted() -> None:
    check_binding()
