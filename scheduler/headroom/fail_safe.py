"""Which missing signal holds, and which lets run. Never fails open."""

from __future__ import annotations

from math import inf
from typing import Final

from scheduler.admission import Hold, OwnLoad, Policy, Readings
from slackwater.explain import Reason

FOREIGN_BUSY_RATIO: Final = 0.3


def missing(readings: Readings, policy: Policy) -> Hold | None:
    """The oldest required signal decides. NVML alone may be down, except in `strict`; a lost GPU never runs."""
    lost = next((gpu for gpu in readings.gpus if gpu.state == "lost"), None)
    if lost is not None:
        return Hold(Reason.NO_SIGNAL, f"GPU {lost.uuid} is lost ({lost.why})", hand_back=True)
    signal, age = oldest(readings, policy)
    if age <= policy.max_age_seconds:
        return None
    said = "missing" if age == inf else f"{age:.1f} s old"
    said += "".join(f" ({gpu.why})" for gpu in readings.gpus if gpu.why and signal == f"nvml {gpu.uuid}")
    return Hold(Reason.NO_SIGNAL, f"the {signal} signal is {said}", hand_back=age > policy.lost_age_seconds)


def oldest(readings: Readings, policy: Policy) -> tuple[str, float]:
    """The required signal that is oldest, and its age in seconds; infinite where it is missing."""
    ages = {"engine": inf if readings.engine is None else _age(readings.engine.age_seconds)}
    if readings.needs_live:
        ages["live"] = inf if readings.live is None else _age(readings.live.age_seconds)
    if policy.mode == "strict":
        seen = {gpu.uuid: _age(gpu.age_seconds) for gpu in readings.gpus if gpu.busy_ratio is not None}
        ages |= {f"nvml {uuid}": seen.get(uuid, inf) for uuid in readings.declared_gpus}
    return max(ages.items(), key=lambda item: item[1])


def _age(seconds: float) -> float:
    """An age that is no number, or from the future, is no age."""
    return seconds if seconds >= 0 else inf


def live(readings: Readings, own: OwnLoad) -> tuple[int, int]:
    """(running, waiting) that is not ours: what the gateways say, and what the engine has beyond that and our own."""
    running, waiting = (readings.live.running, readings.live.waiting) if readings.live else (0, 0)
    engine = readings.engine
    if engine is None or engine.running is None or engine.waiting is None:
        return running, waiting
    beyond = max(0, engine.running + engine.waiting - own.total - running - waiting)
    others_waiting = min(max(0, engine.waiting - own.waiting), beyond)
    return running + beyond - others_waiting, waiting + others_waiting


def queued(readings: Readings, own: OwnLoad, waiting: int) -> int:
    """Of the live requests that wait for their first token, those that the engine has not begun; all of them where it does not tell."""
    engine = readings.engine
    if engine is None or engine.waiting is None:
        return waiting
    return min(waiting, max(0, engine.waiting - own.waiting))


def foreign(readings: Readings, policy: Policy, own: OwnLoad) -> str | None:
    """What GPU is busy though neither live nor own work is known; None when every load is explained."""
    running, waiting = live(readings, own)
    if running or waiting or own.total or (readings.engine and readings.engine.running):
        return None
    for gpu in readings.gpus:
        busy = gpu.busy_ratio
        if busy is not None and busy > FOREIGN_BUSY_RATIO and gpu.age_seconds <= policy.max_age_seconds:
            return f"GPU {gpu.uuid} is {busy:.0%} busy with work that is not ours"
    return None
