"""Hysteresis: close in one tick; open again only after quiet, if the hold was more than a moment; open a step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

MOMENT_SECONDS: Final = 1.0
CROWD: Final = 2
COOL_SECONDS: Final = 2.0
RAMP: Final = 0.15


@dataclass
class Gate:
    """Remembers since when live work has held, and how wide the gate was last."""

    held_since: float | None = None
    crowded_since: float | None = None
    quiet_since: float | None = None
    was_long: bool = False
    width: int = 0

    def close(self, waiting: int, now: float) -> float:
        """`waiting` live requests stand in the queue while live requests hold. Returns for how many seconds it has been more than one."""
        if waiting < 1:
            self.held_since = None
        elif self.held_since is None:
            self.held_since = now
        if waiting < CROWD:
            self.crowded_since = None
        elif self.crowded_since is None:
            self.crowded_since = now
        crowded = 0.0 if self.crowded_since is None else now - self.crowded_since
        held = 0.0 if self.held_since is None else now - self.held_since
        self.was_long = self.was_long or crowded >= MOMENT_SECONDS or held >= COOL_SECONDS
        self.quiet_since = None
        return crowded

    def cooling(self, now: float) -> float:
        """Seconds until it may open; 0 when it may now. Counts from the first quiet reading after a long hold."""
        if not self.was_long:
            self.held_since, self.crowded_since = None, None
            return 0.0
        self.quiet_since = now if self.quiet_since is None else self.quiet_since
        left = self.quiet_since + COOL_SECONDS - now
        if left > 0:
            return left
        self.held_since, self.crowded_since, self.quiet_since = None, None, None
        self.was_long, self.width = False, 0
        return 0.0

    def widen(self, wanted: int, in_flight: int) -> int:
        """At most 15 % more slots than the last time, and one more at least; narrower at once."""
        most = max(self.width, in_flight)
        self.width = min(wanted, most + max(1, ceil(RAMP * most)))
        return self.width
