"""What live requests are owed where the operator has set nothing: from the instance's own quiet times."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from scheduler.admission import LiveReading, Objectives

QUIET_SECONDS: Final = 5.0
WEIGHT: Final = 0.02
TTFT_FACTOR: Final = 1.3
TTFT_MARGIN_SECONDS: Final = 0.15
INTER_TOKEN_FACTOR: Final = 1.5
UNKNOWN_TTFT_SECONDS: Final = 1.0
UNKNOWN_INTER_TOKEN_SECONDS: Final = 0.05


@dataclass
class QuietTimes:
    """Smoothed 99th percentiles while no batch work ran for some seconds."""

    ttft_seconds: float | None = None
    inter_token_seconds: float | None = None
    _quiet_since: float | None = None

    def see(self, live: LiveReading | None, own: int, now: float) -> None:
        """Take in a reading; it counts only once batch work has been gone for a while."""
        if own > 0 or live is None:
            self._quiet_since = None
            return
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        if now - self._quiet_since >= QUIET_SECONDS:
            self.ttft_seconds = _smooth(self.ttft_seconds, live.ttft_p99_seconds)
            self.inter_token_seconds = _smooth(self.inter_token_seconds, live.inter_token_p99_seconds)

    def objectives(self, wanted: Objectives) -> tuple[float, float]:
        """(TTFT, inter-token) in seconds: what is set, else from quiet times, else a cautious guess."""
        ttft, inter_token = wanted.ttft_seconds, wanted.inter_token_seconds
        if ttft is None:
            ttft = UNKNOWN_TTFT_SECONDS
            if self.ttft_seconds is not None:
                ttft = max(TTFT_FACTOR * self.ttft_seconds, self.ttft_seconds + TTFT_MARGIN_SECONDS)
        if inter_token is None:
            inter_token = UNKNOWN_INTER_TOKEN_SECONDS
            if self.inter_token_seconds is not None:
                inter_token = INTER_TOKEN_FACTOR * self.inter_token_seconds
        return ttft, inter_token


def _smooth(old: float | None, new: float | None) -> float | None:
    if new is None or not 0 < new < inf:
        return old
    if old is None:
        return new
    return old + WEIGHT * (new - old)


def pressure(seconds: float | None, objective: float) -> float | None:
    """A measured percentile over its objective; None where nothing sensible was measured."""
    return seconds / objective if seconds is not None and isfinite(seconds) else None
