"""What live requests are owed where the operator has set nothing: from the instance's own quiet times."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from scheduler.admission import LiveReading, Objectives

QUIET_SECONDS: Final = 65.0
MEAN_OF: Final = 200
TTFT_FACTOR: Final = 1.25
TTFT_MARGIN_SECONDS: Final = 0.01
INTER_TOKEN_FACTOR: Final = 1.5
UNKNOWN_TTFT_SECONDS: Final = 1.0
UNKNOWN_INTER_TOKEN_SECONDS: Final = 0.05


@dataclass
class QuietTimes:
    """Mean 99th percentiles of minutes in which no live request met batch work.

    A percentile is over a minute: so long it has requests in it that did. One minute's is near its slowest request, so a mean
    over many readings is owed, and the first requests of a cold engine weigh no more than others.
    """

    ttft_seconds: float | None = None
    inter_token_seconds: float | None = None
    seen: int = 0
    _met_at: float | None = None

    def see(self, live: LiveReading | None, own: int, now: float) -> None:
        """Take in a reading; it counts only once every live request of its minute had the engine to itself."""
        if live is None or (own > 0 and (live.running or live.waiting)):
            self._met_at = now
        elif (self._met_at is None or now - self._met_at >= QUIET_SECONDS) and live.ttft_p99_seconds is not None:
            self.seen = min(MEAN_OF, self.seen + 1)
            self.ttft_seconds = _mean(self.ttft_seconds, live.ttft_p99_seconds, self.seen)
            self.inter_token_seconds = _mean(self.inter_token_seconds, live.inter_token_p99_seconds, self.seen)

    def objectives(self, wanted: Objectives) -> tuple[float, float]:
        """(TTFT, inter-token) in seconds: what is set, else from quiet times, else a cautious guess."""
        ttft, inter_token = wanted.ttft_seconds, wanted.inter_token_seconds
        if ttft is None:
            ttft = UNKNOWN_TTFT_SECONDS
            if self.ttft_seconds is not None:
                ttft = TTFT_FACTOR * self.ttft_seconds + TTFT_MARGIN_SECONDS
        if inter_token is None:
            inter_token = UNKNOWN_INTER_TOKEN_SECONDS
            if self.inter_token_seconds is not None:
                inter_token = INTER_TOKEN_FACTOR * self.inter_token_seconds
        return ttft, inter_token


def _mean(old: float | None, new: float | None, seen: int) -> float | None:
    if new is None or not 0 < new < inf:
        return old
    if old is None:
        return new
    return old + (new - old) / seen


def pressure(seconds: float | None, objective: float) -> float | None:
    """A measured percentile over its objective; None where nothing sensible was measured."""
    return seconds / objective if seconds is not None and isfinite(seconds) else None
