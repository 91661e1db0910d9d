"""What iteration time to aim at: moved by the measured 99th percentiles, since the average that keeps them depends on the traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVERY_SECONDS: Final = 5.0
AIM: Final = 0.85
GAIN: Final = 0.04
BREACH_GAIN: Final = 0.15
MOST_STEP: Final = 0.03
LEAST: Final = 0.35
LOWEST: Final = 0.05
FALL: Final = 0.01
RISE: Final = 0.005
MOST: Final = 0.6
FIRST: Final = 0.5
FIRST_BURDEN: Final = 0.06
LEAST_BURDEN: Final = 0.05
MOST_BURDEN: Final = 0.065
BURDEN_GROW: Final = 0.001
BURDEN_SHRINK: Final = 0.8


@dataclass
class OuterLoop:
    """`share` of the inter-token objective is the iteration time to aim at. `burden` is the share of it that own decoding may add.

    While an objective stays broken, the floor of the share falls, unless it is firm: what is enough elsewhere is too much there.

    The percentiles are those of a minute, so the gain is low: what is changed now shows a minute later.
    """

    share: float = FIRST
    least: float = LEAST
    most: float = MOST
    burden: float = FIRST_BURDEN
    is_firm: bool = False
    fallen: float = 0.0
    moved_at: float | None = None

    def move(self, pressure: float | None, now: float) -> float:
        """`pressure` is the worst measured percentile over its objective; None says nothing, and nothing moves. Returns the share."""
        if self.moved_at is not None and now - self.moved_at < EVERY_SECONDS:
            return self.share
        self.moved_at = now
        if pressure is None:
            return self.share
        gain = GAIN if pressure <= 1.0 else BREACH_GAIN
        step = max(-MOST_STEP, min(MOST_STEP, gain * (AIM - pressure)))
        if not self.is_firm:
            self.fallen = min(self.least - LOWEST, max(0.0, self.fallen + (FALL if pressure > 1.0 else -RISE)))
        self.share = max(self.least - self.fallen, min(self.most, self.share + step))
        if pressure < AIM:
            self.burden = min(MOST_BURDEN, self.burden + BURDEN_GROW)
        return self.share

    def queued(self) -> None:
        """Live requests had to queue for more than a moment: what decodes for batches would have made that longer."""
        self.burden = max(LEAST_BURDEN, self.burden * BURDEN_SHRINK)
