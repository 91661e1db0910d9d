"""What admission is compared with: fixed concurrency, GPU utilisation, own latency, saturation metrics, and an oracle."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Final

from scheduler.simulator.figures import percentile
from scheduler.simulator.iteration import Iteration
from scheduler.simulator.replay import Replay
from scheduler.simulator.traces import Arrival

NIGHT_SHARE: Final = 1 / 3
ADMITTED_KV: Final = 0.85


@dataclass
class AlwaysOn:
    """`n` batch requests in flight whatever happens; 0 is live traffic alone."""

    n: int

    @property
    def name(self) -> str:
        return f"always on, {self.n}" if self.n else "live only"

    def tick(self, replay: Replay) -> None:
        return

    def own_tokens(self, replay: Replay) -> int:
        while replay.own < self.n:
            replay.start()
        return replay.replica.limits.chunk

    def after(self, replay: Replay, it: Iteration) -> None:
        return


@dataclass
class Paced(AlwaysOn):
    """Fills up to `slots` four times a second and whenever a request ends."""

    slots: int = 0

    def own_tokens(self, replay: Replay) -> int:
        while replay.own < self.slots:
            replay.start()
        return replay.replica.limits.chunk


@dataclass
class Gated(Paced):
    """`n` in flight while the gate is open, looked at four times a second."""

    def tick(self, replay: Replay) -> None:
        self.slots = self.n if self.is_open(replay) else 0

    @abstractmethod
    def is_open(self, replay: Replay) -> bool: ...


@dataclass
class NightWindow(Gated):
    """`n` in flight in the quietest third of the trace, known in hindsight."""

    begins_at: float = 0.0

    @property
    def name(self) -> str:
        return f"night window, {self.n}"

    def is_open(self, replay: Replay) -> bool:
        return 0 <= replay.now - self.begins_at < replay.seconds * NIGHT_SHARE


def quietest(arrivals: list[Arrival], seconds: float) -> float:
    """Where the third of the trace with the fewest live tokens begins."""
    width = seconds * NIGHT_SHARE
    starts = [i * (seconds - width) / 40 for i in range(41)]
    return min(starts, key=lambda b: sum(a.prompt + a.output for a in arrivals if b <= a.at < b + width))


@dataclass
class NvmlGate(Gated):
    """`n` in flight while the GPU is less busy than `below`."""

    below: float = 0.5

    @property
    def name(self) -> str:
        return f"NVML gate <{self.below:.0%}, {self.n}"

    def is_open(self, replay: Replay) -> bool:
        return replay.signals.busy_ratio < self.below


@dataclass
class NvmlPoll(AlwaysOn):
    """When the GPU is less busy than `below`, take `n`, run them all to the end, look again."""

    below: float = 0.3

    @property
    def name(self) -> str:
        return f"NVML poll <{self.below:.0%}, {self.n} to the end"

    def tick(self, replay: Replay) -> None:
        if replay.own == 0 and replay.signals.busy_ratio < self.below:
            for _ in range(self.n):
                replay.start()

    def own_tokens(self, replay: Replay) -> int:
        return replay.replica.limits.chunk


@dataclass
class Aimd(Paced):
    """Concurrency by the latency of batch requests themselves: +1 below twice the best seen, halved above; looked at every second."""

    n: int = 1
    limit: float = 1.0
    best: float = 1e9
    _looked_at: float = 0.0
    _seen: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "AIMD on own latency"

    def tick(self, replay: Replay) -> None:
        if replay.now - self._looked_at >= 1.0 and self._seen:
            latency = percentile(self._seen, 0.9)
            self.best = min(self.best, percentile(self._seen, 0.5))
            self.limit = min(64.0, self.limit + 1) if latency < 2 * self.best else max(1.0, self.limit / 2)
            self._seen, self._looked_at = [], replay.now
        self.slots = int(self.limit)

    def after(self, replay: Replay, it: Iteration) -> None:
        self._seen += [(replay.now - s.arrived_at) / (s.prompt + 8 * s.output) for s in it.ended_own]


@dataclass
class Saturation(Gated):
    """A gate on cached engine metrics, as llm-d's: budget = 1 - max(waiting / 5, cache / 0.8), read every five seconds."""

    read_at: float = -1e9
    saturation: float = 0.0

    @property
    def name(self) -> str:
        return f"saturation gate, {self.n}"

    def is_open(self, replay: Replay) -> bool:
        if replay.now - self.read_at >= 5.0:
            self.read_at = replay.now
            self.saturation = max(replay.signals.waiting / 5, replay.signals.kv_ratio / 0.8)
        return self.saturation < 0.8


@dataclass
class Oracle:
    """Knows the exact time of every iteration and fills it to `target_ms`; the target is tuned in hindsight."""

    target_ms: float
    share: float = 0.85
    name: str = "in-engine oracle"

    def tick(self, replay: Replay) -> None:
        return

    def own_tokens(self, replay: Replay) -> int:
        r = replay.replica
        costs, n = r.costs, r.live_decoding + r.own_decoding
        if not replay.own_unprefilled:
            alone = costs.iteration_ms(n + 1, r.kv, 0, 0, 0)
            if alone >= self.share * self.target_ms or r.reserved >= ADMITTED_KV * r.limits.kv:
                return 0
            replay.start()
        live = min(r.limits.chunk - n, r.live_prefill_tokens) if r.prefills or r.waiting else 0
        past = r.own_prefills[0].past if r.own_prefills else 0
        low, high = -1, r.limits.chunk - n - live
        while low < high:
            tokens = (low + high + 1) // 2
            work = live * 1000.0 + tokens * (past + tokens / 2)
            if costs.iteration_ms(n, r.kv, live + tokens, work, 1) <= self.target_ms:
                low = tokens
            else:
                high = tokens - 1
        return max(0, low)

    def after(self, replay: Replay, it: Iteration) -> None:
        return
