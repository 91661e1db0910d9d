"""For what share of the time an upstream may be reading a batch prompt beside live requests.

A whole prompt cannot be stopped once it is being read, and while it is every live prompt takes longer: how often that happens is all
that can be chosen. The measured first-token times choose it. Work that is read costs reading time; time pays it back at the share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVERY_SECONDS: Final = 5.0
FIRST: Final = 0.3
LEAST: Final = 0.02
GROW: Final = 0.02
SHRINK: Final = 0.08
LIMIT: Final = 0.95
SCALE: Final = 0.15
FASTEST: Final = 3.0
KEPT_SECONDS: Final = 0.25
MOST_SECONDS: Final = 1.0


@dataclass
class Pace:
    """`owed` seconds of reading have yet to be paid back; below 0 they were saved up."""

    share: float = FIRST
    least: float = LEAST
    owed: float = 0.0
    moved_at: float | None = None
    passed_at: float | None = None

    def move(self, pressure: float | None, now: float) -> None:
        """`pressure` is the 99th percentile of first-token times in the last minute over its objective; None moves nothing.

        It falls four times as fast as it grows, so that it settles where the percentile is over the limit in few of the minutes; the
        share that a broken objective leaves falls to nearly nothing.
        """
        if self.moved_at is not None and now - self.moved_at < EVERY_SECONDS:
            return
        self.moved_at = now
        if pressure is None:
            return
        grow = GROW * min(FASTEST, (LIMIT - pressure) / SCALE)
        self.share *= 1.0 + grow if pressure <= LIMIT else 1.0 - SHRINK
        self.share = min(1.0, max(self.least, self.share))

    def spend(self, seconds: float) -> None:
        """A prompt was started that takes so long to read."""
        self.owed += seconds

    def passes(self, now: float) -> None:
        """Time goes by."""
        seconds = 0.0 if self.passed_at is None else min(MOST_SECONDS, max(0.0, now - self.passed_at))
        self.passed_at = now
        self.owed = max(-KEPT_SECONDS, self.owed - self.share * seconds)

    @property
    def is_due(self) -> bool:
        """What was read is paid back."""
        return self.owed <= 0.0
