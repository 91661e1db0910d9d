"""What a run is judged by. Times are seconds where nothing else is said."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Values
from dataclasses import dataclass, field
from typing import Final

BINS_PER_MS: Final = 4
WINDOW_SECONDS: Final = 60.0
BURST_SECONDS: Final = 0.5


def percentile(values: Values[float], share: float) -> float:
    """The value below which `share` of them lie; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass
class Recent:
    """The 99th percentile over the last minute, as a gateway reports it."""

    values: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, at: float, value: float) -> None:
        self.values.append((at, value))

    def p99(self, now: float) -> float | None:
        while self.values and self.values[0][0] < now - WINDOW_SECONDS:
            self.values.popleft()
        return percentile([v for _, v in self.values], 0.99) if self.values else None


@dataclass
class Measured:
    """Raw figures of one replica's run, added to as it goes."""

    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    gaps: list[int] = field(default_factory=lambda: [0] * 2400)
    busy: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    wasted_tokens: int = 0
    live_tokens: int = 0
    stops: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)
    cancelled: int = 0
    opens: int = 0

    def gap(self, ms: float, streams: int) -> None:
        """`streams` live answers waited `ms` for their next token."""
        self.gaps[min(len(self.gaps) - 1, int(ms * BINS_PER_MS))] += streams

    def gap_p99_ms(self) -> float:
        """The 99th percentile of the times between two tokens of a live answer."""
        left = 0.01 * sum(self.gaps)
        for i in range(len(self.gaps) - 1, -1, -1):
            left -= self.gaps[i]
            if left < 0:
                return (i + 1) / BINS_PER_MS
        return 0.0


@dataclass
class Bursts:
    """How long batch prompts went on after live requests had to wait for their turn, where they waited for half a second or more.

    `stops` counts the starts of whole prompts, with `counts_computed` also what was computed of them; `tails` what was computed.
    """

    measured: Measured
    counts_computed: bool
    fed_at: float = 0.0
    _computed_at: float = 0.0
    _since: float | None = None
    _was_computing: bool = False

    def see(self, began_at: float, *, is_burst: bool, computing: bool) -> bool:
        """One iteration. Says whether batch prompts are computed again after a pause."""
        if is_burst and self._since is None:
            self._since = began_at
        elif not is_burst and self._since is not None:
            if began_at - self._since >= BURST_SECONDS:
                self.measured.stops.append(max(0.0, self.fed_at - self._since))
                self.measured.tails.append(max(0.0, self._computed_at - self._since))
            self._since = None
        if computing:
            self._computed_at = began_at
            self.fed_at = began_at if self.counts_computed else self.fed_at
        opened = computing and not self._was_computing
        self._was_computing = computing
        return opened


@dataclass(frozen=True, slots=True)
class Figures:
    """A finished run of one policy on one trace and seed, over all replicas."""

    policy: str
    seconds: float
    batch_tokens_per_second: float
    live_tokens_per_second: float
    ttft_p50: float
    ttft_p99: float
    tpot_p50_ms: float
    tpot_p99_ms: float
    gap_p99_ms: float
    busy_ratio: float
    wasted_ratio: float
    stop_p99: float
    tail_p99: float
    cancelled: int
    finished: int
    opens_per_minute: float


def summed(policy: str, runs: Values[Measured], seconds: float, finished: int) -> Figures:
    """One line for several replicas: percentiles over all their requests, rates per replica."""
    every = Measured()
    for m in runs:
        every.ttft += m.ttft
        every.tpot += m.tpot
        every.stops += m.stops
        every.tails += m.tails
        every.gaps = [a + b for a, b in zip(every.gaps, m.gaps, strict=True)]
    total = seconds * len(runs)
    wasted = sum(m.wasted_tokens for m in runs)
    done = sum(m.prompt_tokens + m.output_tokens for m in runs)
    return Figures(
        policy,
        seconds,
        (done - wasted) / total,
        sum(m.live_tokens for m in runs) / total,
        percentile(every.ttft, 0.5),
        percentile(every.ttft, 0.99),
        1000 * percentile(every.tpot, 0.5),
        1000 * percentile(every.tpot, 0.99),
        every.gap_p99_ms(),
        sum(m.busy for m in runs) / total,
        wasted / done if done else 0.0,
        percentile(every.stops, 0.99),
        percentile(every.tails, 0.99),
        sum(m.cancelled for m in runs),
        finished,
        60 * sum(m.opens for m in runs) / total,
    )
