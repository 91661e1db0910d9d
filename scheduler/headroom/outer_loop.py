"""What iteration time to aim at: moved by the measured 99th percentiles, since the average that keeps them depends on the traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVERY_SECONDS: Final = 5.0
HIGH: Final = 0.95
LOW: Final = 0.90
SHRINK: Final = 0.95
GROW: Final = 0.02
LEAST: Final = 0.3
MOST: Final = 1.05
FIRST: Final = 0.7


@dataclass
class OuterLoop:
    """`share` of the inter-token objective is the iteration time to aim at; between LEAST and MOST."""

    share: float = FIRST
    moved_at: float | None = None

    def move(self, pressure: float | None, now: float) -> float:
        """`pressure` is the worst measured percentile over its objective; None says nothing, and nothing moves. Returns the share."""
        if self.moved_at is not None and now - self.moved_at < EVERY_SECONDS:
            return self.share
        self.moved_at = now
        if pressure is None:
            return self.share
        if pressure > HIGH:
            self.share = max(LEAST, self.share * SHRINK)
        elif pressure < LOW:
            self.share = min(MOST, self.share + GROW)
        return self.share
