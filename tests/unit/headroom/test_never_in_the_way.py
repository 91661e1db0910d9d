"""Whatever comes in, and in whatever order: nothing is admitted while live work waits or a needed signal is stale."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.admission import Admit, EngineReading, GpuReading, LiveReading, Mode, OwnLoad, Policy, Readings
from scheduler.headroom import Headroom, Row
from tests.unit.headroom.readings import GPU

AGES = st.one_of(st.floats(0, 0.9), st.floats(1.001, 30), st.sampled_from([float("inf"), float("nan"), -1.0]))
COUNTS = st.integers(0, 40)
RATIOS = st.one_of(st.none(), st.floats(0, 1), st.just(float("nan")))
SECONDS = st.one_of(st.none(), st.floats(0, 60), st.just(float("nan")))


@dataclass(frozen=True)
class Step:
    """One tick: seconds since the last, what was read, and what is ours."""

    after: float
    readings: Readings
    own: OwnLoad


ENGINES = st.one_of(
    st.none(),
    st.builds(
        EngineReading,
        AGES,
        st.one_of(st.none(), COUNTS),
        st.one_of(st.none(), COUNTS),
        RATIOS,
        st.one_of(st.none(), st.integers(0, 10**6)),
        st.one_of(st.none(), st.integers(0, 10**9)),
        st.one_of(st.none(), st.just(560_000)),
    ),
)
LIVE = st.one_of(st.none(), st.builds(LiveReading, AGES, COUNTS, st.integers(0, 3), SECONDS, SECONDS))
GPUS = st.lists(st.builds(GpuReading, st.just(GPU), AGES, RATIOS), max_size=1).map(tuple)
STEPS = st.builds(
    Step,
    st.floats(0, 10),
    st.builds(Readings, ENGINES, LIVE, GPUS, st.booleans(), st.just((GPU,)), st.booleans(), st.booleans()),
    st.builds(OwnLoad, st.integers(0, 20), st.integers(0, 20), st.one_of(st.none(), st.integers(0, 10**6)), st.just(0)),
)


def is_fresh(age: float) -> bool:
    return 0 <= age <= 1.0


def live_waits(step: Step) -> bool:
    """The gateways say so, or something waits in the engine that is neither theirs nor ours."""
    live, engine = step.readings.live, step.readings.engine
    if live is not None and live.waiting > 0:
        return True
    if engine is None or engine.running is None or not engine.waiting:
        return False
    known = step.own.total + (live.running if live else 0)
    return engine.running + engine.waiting > known


@settings(max_examples=150, deadline=None)
@given(
    st.lists(STEPS, min_size=1, max_size=25),
    st.sampled_from(["strict", "balanced", "deadline"]),
    st.booleans(),
)
def test_nothing_is_admitted_in_the_way(steps: list[Step], mode: Mode, in_engine: bool) -> None:
    headroom, now = Headroom(Policy(16, mode), in_engine=in_engine), 0.0
    for step in steps:
        now += step.after
        decision = headroom.decide(step.readings, step.own, now)
        if not isinstance(decision, Admit):
            continue
        engine, live = step.readings.engine, step.readings.live
        assert engine is not None
        assert is_fresh(engine.age_seconds)
        assert not step.readings.needs_live or (live is not None and is_fresh(live.age_seconds))
        assert not live_waits(step)
        assert not step.readings.paused
        if mode == "strict":
            assert any(is_fresh(g.age_seconds) and g.busy_ratio is not None for g in step.readings.gpus)
        assert 0 < decision.slots <= 16 - step.own.others
        assert decision.prompt_tokens >= 0
        assert 0 <= decision.valid_seconds <= 1.0
        headroom.started(decision.prompt_tokens)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(STEPS, min_size=1, max_size=10),
    st.builds(
        Row,
        st.integers(0, 300),
        st.floats(0, 1),
        st.just(0),
        st.just(0.0),
        st.integers(0, 4000),
        st.floats(0, 1e8),
        st.integers(0, 3),
        st.integers(0, 100_000),
    ),
    st.floats(0, 3),
)
def test_no_slice_while_stale_or_in_the_way(steps: list[Step], row: Row, later: float) -> None:
    headroom, now = Headroom(Policy(16), in_engine=True), 0.0
    for step in steps:
        now += step.after
        headroom.decide(step.readings, step.own, now)
        part = headroom.slice(row, now + later)
        engine, live = step.readings.engine, step.readings.live
        ages = [] if engine is None else [engine.age_seconds]
        ages += [live.age_seconds if live else float("inf")] if step.readings.needs_live else []
        is_stale = engine is None or not all(0 <= age + later <= 1.0 + 1e-9 for age in ages)
        if is_stale or row.live_waiting:
            assert part.prompt_tokens == 0
        assert 0 <= part.prompt_tokens <= max(0, 1024 - row.sequences - row.live_prompt)
