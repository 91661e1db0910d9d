"""Readings for tests: everything fresh and idle unless a test says otherwise."""

from __future__ import annotations

from scheduler.admission import EngineReading, GpuReading, LiveReading, Mode, OwnLoad, Policy, Readings

GPU = "GPU-1"
IDLE = OwnLoad()


def a_policy(mode: Mode = "balanced", slots: int = 16) -> Policy:
    return Policy(slots, mode)


def a_reading(
    *,
    running: int = 0,
    waiting: int = 0,
    own: int = 0,
    busy: float | None = 0.05,
    engine_age: float = 0.1,
    live_age: float = 0.1,
    gpu_age: float = 0.1,
    state: str = "ok",
) -> Readings:
    """`running` and `waiting` are live; the engine sees `own` besides."""
    return Readings(
        EngineReading(engine_age, running + own, waiting, 0.1),
        LiveReading(live_age, running, waiting),
        (GpuReading(GPU, gpu_age, busy, state=state),),
        needs_live=True,
        declared_gpus=(GPU,),
    )
