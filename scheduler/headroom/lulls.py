"""How long it must have been quiet before reading batch prompts needs no pace: until few enough live requests come after such a quiet.

Reading at full speed while nobody is there meets the first live requests that come back, and only those. How many they are of all
depends on the traffic: one in fifty where chat comes in stretches, nearly every one where a request comes every ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

EDGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MOST_SHARE: Final = 0.1
FIRST_SECONDS: Final = 10.0
ENOUGH: Final = 20.0
KEPT: Final = 0.998


@dataclass
class Lulls:
    """Live requests that came, and how many of them after a quiet of at least each of `EDGES`; both fade as more come."""

    total: float = 0.0
    after: list[float] = field(default_factory=lambda: [0.0] * len(EDGES))
    _live: int = 0

    def see(self, live: int, quiet_seconds: float) -> None:
        """So many live requests are there now, after so long without any. What came and went between two readings is not seen."""
        new, self._live = live - self._live, live
        if new <= 0:
            return
        kept = KEPT**new
        self.total = self.total * kept + new
        self.after = [n * kept + new * (quiet_seconds >= edge) for n, edge in zip(self.after, EDGES, strict=True)]

    def needed(self) -> float:
        """Seconds of quiet; infinite where even after the longest too many come."""
        if self.total < ENOUGH:
            return FIRST_SECONDS
        few = MOST_SHARE * self.total
        return next((edge for edge, n in zip(EDGES, self.after, strict=True) if n <= few), inf)
