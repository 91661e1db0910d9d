"""What holds whatever room there is: a pause, live requests that wait, foreign load, quiet that has yet to come, mode `strict`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from scheduler.admission import Hold, OwnLoad, Policy, Readings
from scheduler.headroom import fail_safe
from scheduler.headroom.counters import cache
from scheduler.headroom.gate import Gate
from slackwater.explain import Reason

IDLE_SECONDS: Final = 2.0
FOREIGN_SECONDS: Final = 2.0
SLACK_SECONDS: Final = 0.3
LONG_WAIT_SECONDS: Final = 4.0
CROWD_SECONDS: Final = 0.5
KV_EMERGENCY_RATIO: Final = 0.93


@dataclass
class Vetoes:
    """Remembers when live requests were last seen, and since when load is foreign. `in_engine` takes back nothing for waiting alone."""

    policy: Policy
    in_engine: bool
    gate: Gate = field(default_factory=Gate)
    live_at: float | None = None
    live: int = 0
    known: list[tuple[float, int]] = field(default_factory=list)
    foreign_since: float | None = None

    def check(self, readings: Readings, own: OwnLoad, now: float, can_take_back: Callable[[], bool]) -> Hold | None:
        """The first reason to hold; None where there is none. `can_take_back` spends what may be read for nothing."""
        if readings.paused:
            return Hold(Reason.MODEL_PAUSED)
        running, waiting = fail_safe.live(readings, own)
        if self.in_engine:
            unbegun = fail_safe.queued(readings, own, waiting)
            running, waiting = running + waiting - unbegun, unbegun
        self._see(readings, own, now)
        if waiting > 0:
            return self._live_waits(readings, own, waiting, now, can_take_back)
        foreign = self._foreign(readings, own, now)
        if foreign is not None:
            return foreign
        cooling = self.gate.cooling(now)
        if cooling > 0:
            return Hold(Reason.LIVE_WAITING, f"live requests were waiting; {cooling:.1f} s of quiet to go")
        if self.policy.mode == "strict" and running > 0:
            return Hold(Reason.LIVE_RUNNING, f"{running} live requests are running")
        return None

    def _see(self, readings: Readings, own: OwnLoad, now: float) -> None:
        """Whether live requests are there. One of ours that has ended since the engine was read was not a live one."""
        age = readings.engine.age_seconds if readings.engine is not None else 0.0
        self.known = [(at, total) for at, total in self.known if at >= now - age - SLACK_SECONDS] + [(now, own.total)]
        then = OwnLoad(max(total for _, total in self.known), 0, waiting=own.waiting)
        self.live = sum(fail_safe.live(readings, then))
        if self.live or self.live_at is None:
            self.live_at = now if self.live else now - IDLE_SECONDS

    def is_idle(self, now: float) -> bool:
        """No live request for two seconds."""
        return self.quiet_seconds(now) >= IDLE_SECONDS

    def quiet_seconds(self, now: float) -> float:
        """Since a live request was last seen."""
        return 0.0 if self.live_at is None else now - self.live_at

    def _live_waits(
        self, readings: Readings, own: OwnLoad, waiting: int, now: float, can_take_back: Callable[[], bool]
    ) -> Hold:
        """The ladder: stop starting; in a queue take back what has no token; decoding requests only where the cache is full."""
        lasted = self.gate.close(fail_safe.queued(readings, own, waiting), now)
        is_full = readings.engine is not None and cache(readings.engine) > KV_EMERGENCY_RATIO
        is_crowd = not self.in_engine and lasted >= CROWD_SECONDS
        is_long = is_crowd and (lasted >= LONG_WAIT_SECONDS or can_take_back())
        return Hold(
            Reason.LIVE_WAITING,
            f"{waiting} live requests are waiting",
            hand_back=is_long or is_full,
            cancel_unprefilled=is_long or is_full,
            cancel_decoding=ceil(own.mine / 4) if is_full else 0,
        )

    def _foreign(self, readings: Readings, own: OwnLoad, now: float) -> Hold | None:
        said = fail_safe.foreign(readings, self.policy, own)
        if said is None:
            self.foreign_since = None
            return None
        self.foreign_since = now if self.foreign_since is None else self.foreign_since
        return Hold(Reason.FOREIGN_LOAD, said) if now - self.foreign_since >= FOREIGN_SECONDS else None
