"""May batch work run now, and how much of it. Pure: readings and a policy in, `Admit` or `Hold` with its reason out.

Live requests come first, and what is unknown is never taken for idle: a required signal that is missing or stale holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.explain import Reason

Mode = Literal["strict", "balanced", "deadline"]


@dataclass(frozen=True, slots=True)
class EngineReading:
    """What the engine says of itself. None where this engine does not tell. `age_seconds` is since it was read."""

    age_seconds: float
    running: int | None = None
    waiting: int | None = None
    kv_used_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class LiveReading:
    """Live requests on the instance, summed over all api processes; the age is that of the oldest of them."""

    age_seconds: float
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU by UUID. None where the driver does not tell: unknown is neither 0 nor 1. `why` says what is missing."""

    uuid: str
    age_seconds: float
    busy_ratio: float | None = None
    memory_used_ratio: float | None = None
    sm_ratio: float | None = None
    dram_ratio: float | None = None
    power_watts: float | None = None
    processes: int | None = None
    state: str = "ok"
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything that is known at one instant. A missing signal is None, or an absent GPU."""

    engine: EngineReading | None
    live: LiveReading | None
    gpus: tuple[GpuReading, ...] = ()
    needs_live: bool = False
    declared_gpus: tuple[str, ...] = ()
    paused: bool = False


@dataclass(frozen=True, slots=True)
class OwnLoad:
    """Batch requests in flight on the instance: of this worker, and of every other one (fresh grants)."""

    mine: int = 0
    others: int = 0

    @property
    def total(self) -> int:
        return self.mine + self.others


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator allows. Ages are seconds; `max_slots` is for all workers of the instance together."""

    max_slots: int
    mode: Mode = "balanced"
    max_age_seconds: float = 1.0
    lost_age_seconds: float = 5.0
    slice_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class Admit:
    """This worker may have `slots` requests in flight, and start requests of `prompt_tokens` in all until the next decision."""

    slots: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Start nothing. With `hand_back`, also give back what has not started."""

    reason: Reason
    details: str | None = None
    hand_back: bool = False


def admit(readings: Readings, policy: Policy, own: OwnLoad) -> Admit | Hold:
    """Decide for one worker. Order: lost GPUs, missing signals, then live traffic, then room."""
    lost = next((gpu for gpu in readings.gpus if gpu.state == "lost"), None)
    if lost is not None:
        return Hold(Reason.NO_SIGNAL, f"GPU {lost.uuid} is lost ({lost.why})", hand_back=True)
    stale = _stale(readings, policy)
    if stale is not None:
        return stale
    if readings.paused:
        return Hold(Reason.MODEL_PAUSED)
    running, waiting = _live(readings, own)
    if waiting > 0:
        return Hold(Reason.LIVE_WAITING, f"{waiting} live requests are waiting")
    if policy.mode == "strict" and running > 0:
        return Hold(Reason.LIVE_RUNNING, f"{running} live requests are running")
    room = policy.max_slots - running - own.others
    if room <= 0:
        return Hold(Reason.FULL, f"{running} live and {own.others} other batch requests fill {policy.max_slots} slots")
    return Admit(room, policy.slice_tokens)


def _stale(readings: Readings, policy: Policy) -> Hold | None:
    """The oldest required signal decides. NVML alone may be down, except in `strict`."""
    ages = {"engine": readings.engine.age_seconds if readings.engine else float("inf")}
    if readings.needs_live:
        ages["live"] = readings.live.age_seconds if readings.live else float("inf")
    if policy.mode == "strict":
        seen = {gpu.uuid: gpu.age_seconds for gpu in readings.gpus if gpu.busy_ratio is not None}
        ages |= {f"nvml {uuid}": seen.get(uuid, float("inf")) for uuid in readings.declared_gpus}
    signal, age = max(ages.items(), key=lambda item: item[1])
    if age <= policy.max_age_seconds:
        return None
    said = "missing" if age == float("inf") else f"{age:.1f} s old"
    said += "".join(f" ({gpu.why})" for gpu in readings.gpus if gpu.why and signal == f"nvml {gpu.uuid}")
    return Hold(Reason.NO_SIGNAL, f"the {signal} signal is {said}", hand_back=age > policy.lost_age_seconds)


def _live(readings: Readings, own: OwnLoad) -> tuple[int, int]:
    """(running, waiting) that is not ours: what the gateways say, or what the engine has beyond our own, whichever is more."""
    live = readings.live or LiveReading(0.0)
    engine = readings.engine
    if engine is None or engine.running is None or engine.waiting is None:
        return live.running, live.waiting
    beyond = max(0, engine.running + engine.waiting - own.total)
    return max(live.running, beyond), max(live.waiting, min(engine.waiting, beyond))
