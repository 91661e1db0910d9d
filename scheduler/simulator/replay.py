"""Replays one replica: live arrivals, a backlog of batch work, signals with their ages, faults, and a strategy that decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Values
from math import inf
from typing import Final, Protocol

from scheduler.simulator.backlog import Backlog
from scheduler.simulator.costs import Costs
from scheduler.simulator.engine import Replica
from scheduler.simulator.figures import Bursts, Measured, Recent
from scheduler.simulator.first_come import FirstComeReplica
from scheduler.simulator.iteration import Iteration, Limits, Sequence
from scheduler.simulator.signals import Fault, Signals
from scheduler.simulator.traces import Arrival, seeded

TICK_SECONDS: Final = 0.25
RESCUE_SECONDS: Final = 15.0
SOONEST_SECONDS: Final = 0.05


class Strategy(Protocol):
    """Decides when batch requests start. `tick` runs four times a second, `own_tokens` before each iteration."""

    @property
    def name(self) -> str: ...

    def tick(self, replay: Replay) -> None: ...

    def own_tokens(self, replay: Replay) -> int:
        """Batch prompt tokens of the next iteration; negative when batch requests that decode pause as well."""
        ...

    def after(self, replay: Replay, it: Iteration) -> None: ...


class Replay:
    """One replica from 0 to `seconds`."""

    def __init__(
        self,
        arrivals: Values[Arrival],
        backlog: Backlog,
        strategy: Strategy,
        costs: Costs,
        limits: Limits,
        seconds: float,
        *,
        seed: int = 0,
        faults: Values[Fault] = (),
    ) -> None:
        self.arrivals, self.backlog, self.strategy, self.seconds = arrivals, backlog, strategy, seconds
        self.replica = FirstComeReplica(costs, limits) if limits.first_come else Replica(costs, limits)
        self.faults = faults
        self.now = 0.0
        self.signals = Signals()
        self.measured = Measured()
        self.in_flight: dict[int, Sequence] = {}
        self._next_arrival = 0
        self._next_tick = 0.0
        self._next_sample = seeded(seed, 2).random() * TICK_SECONDS
        self._tokens = 0
        self._busy: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self._ttft, self._tpot = Recent(), Recent()
        self._p99_at = -1.0
        self._bursts = Bursts(self.measured, counts_computed=not limits.first_come)
        self._dead_until = 0.0
        self._look_at = inf

    @property
    def own(self) -> int:
        """Batch requests in flight."""
        return len(self.in_flight)

    @property
    def own_unprefilled(self) -> int:
        return len(self.replica.own_prefills) + len(self.replica.own_waiting)

    def is_faulty(self, what: str) -> bool:
        return any(f.what == what and f.at <= self.now < f.at + f.seconds for f in self.faults)

    def start(self, *, whole: bool = True) -> int:
        """Start the next batch request, `whole` or in slices. Returns its prompt tokens."""
        id_, prompt, output = self.backlog.take()
        s = Sequence(id_, prompt, output, self.now, is_live=False)
        self.in_flight[id_] = s
        self.replica.arrive(s)
        if whole:
            self._bursts.fed_at = self.now
        return prompt

    def look_again(self, seconds: float | None) -> None:
        """Decide once more after so long, if that is before the next decision."""
        self._look_at = inf if seconds is None else self.now + seconds

    def cancel_unprefilled(self, newest: int | None = None) -> None:
        """Take back what has no token yet: all of it, or the newest so many."""
        gone, wasted = self.replica.cancel_unprefilled(newest)
        self._give_back(gone, wasted)

    def cancel_decoding(self, most: int) -> None:
        """Take back decoding requests, the least computed first; an upstream starts them over."""
        gone, wasted = self.replica.cancel_decoding(most)
        self._give_back(gone, wasted)

    def _give_back(self, gone: list[Sequence], wasted: int) -> None:
        self.measured.wasted_tokens += wasted
        self.measured.cancelled += len(gone)
        for s in gone:
            del self.in_flight[s.id]
            self.backlog.give_back(s)

    def run(self) -> Measured:
        """Replay everything. Returns what was measured."""
        while self.now < self.seconds:
            self._arrive()
            if self.now >= self._next_sample:
                self._sample()
            if self.now >= self._next_tick:
                self._tick()
            elif self.now >= self._look_at and not self.is_faulty("worker") and self.now >= self._dead_until:
                self._look_at = inf
                self.strategy.tick(self)
            tokens = 0 if self.now < self._dead_until else self.strategy.own_tokens(self)
            replica = self.replica
            if replica.is_idle or not (tokens > 0 or self._has_work(decode_own=tokens >= 0)):
                self._skip()
            else:
                self._step(tokens)
        return self.measured

    def _has_work(self, *, decode_own: bool) -> bool:
        r = self.replica
        return bool(r.endings or r.prefills or r.waiting or (decode_own and r.own_endings))

    def _arrive(self) -> None:
        arrivals, i = self.arrivals, self._next_arrival
        while i < len(arrivals) and arrivals[i].at <= self.now:
            a = arrivals[i]
            i += 1
            self._live_changed()
            self.replica.arrive(Sequence(i, a.prompt, a.output, a.at, is_live=True))
        self._next_arrival = i

    def _live_changed(self) -> None:
        """A gateway says at once that a live request came, or that one has its first token; but not too often."""
        self._next_sample = min(self._next_sample, max(self.now, self.signals.live_at + SOONEST_SECONDS))

    def _skip(self) -> None:
        """Nothing to compute until the next arrival, sample or decision."""
        i = self._next_arrival
        arrival = self.arrivals[i].at if i < len(self.arrivals) else self.seconds
        self.now = max(self.now + 1e-6, min(arrival, self._next_tick, self._look_at, self._next_sample, self.seconds))

    def _tick(self) -> None:
        self._next_tick += TICK_SECONDS
        if not self.is_faulty("engine"):
            self._sample_engine()
        if self.is_faulty("worker"):
            if self._dead_until < self.now:
                self._kill()
            return
        if self.now >= self._dead_until:
            self.strategy.tick(self)

    def _kill(self) -> None:
        """The worker dies: what it ran is lost, and is run again once its leases have ended."""
        self._dead_until = self.now + RESCUE_SECONDS
        self.cancel_unprefilled()
        self.cancel_decoding(1 << 30)

    def _step(self, tokens: int) -> None:
        it = self.replica.step(max(0, tokens), self.now, decode_own=tokens >= 0)
        seconds = it.ms / 1000
        m = self.measured
        prefills = self.replica.prefills
        is_burst = bool(self.replica.waiting or (prefills and prefills[-1].past == 0))
        m.opens += self._bursts.see(self.now, is_burst=is_burst, computing=it.own_prompt > 0)
        self.now += seconds
        m.busy += seconds
        m.prompt_tokens += it.own_prompt
        m.output_tokens += it.decoding - it.live_decoding + len(it.first_own)
        m.live_tokens += it.live_prompt + it.live_decoding + len(it.first_live)
        self._tokens += it.decoding + self._counted(it)
        if it.live_decoding:
            m.gap(it.ms, it.live_decoding)
        if it.first_live:
            self._live_changed()
        for s in it.first_live:
            self._add(m.ttft, self._ttft, self.now - s.arrived_at)
        for s in it.ended_live:
            if s.output > 1:
                self._add(m.tpot, self._tpot, (self.now - s.first_at) / (s.output - 1))
        for s in it.ended_own:
            del self.in_flight[s.id]
            self.backlog.finish(s)
        self.strategy.after(self, it)

    def _counted(self, it: Iteration) -> int:
        """Prompt tokens as the engine's counters have them: vLLM counts a prompt once it has been read to its end, and all of it then."""
        if not self.replica.limits.first_come:
            return it.live_prompt + it.own_prompt
        return sum(s.prompt + 1 for s in (*it.first_live, *it.first_own))

    def _add(self, every: list[float], recent: Recent, value: float) -> None:
        every.append(value)
        recent.add(self.now, value)

    def _sample_engine(self) -> None:
        """The worker scrapes the engine just before it decides."""
        s, r = self.signals, self.replica
        s.engine_at = self.now
        s.waiting = r.live_unbegun + r.own_unbegun
        s.running = r.live_running + len(r.waiting) + self.own - s.waiting
        s.kv_ratio = r.kv / r.limits.kv
        s.iterations, s.iteration_tokens = r.index, self._tokens

    def _sample(self) -> None:
        """What comes at its own time: the gateways' rows, and the GPU."""
        self._next_sample = self.now + TICK_SECONDS
        if not self.is_faulty("live"):
            self._sample_live()
        if not self.is_faulty("nvml"):
            self._sample_gpu()

    def _sample_live(self) -> None:
        s, r, now = self.signals, self.replica, self.now
        s.live_at = now
        s.live_waiting = len(r.waiting) + len(r.prefills)
        s.live_running = r.live_decoding
        if now - self._p99_at >= 1.0:
            self._p99_at = now
            s.ttft_p99, s.tpot_p99 = self._ttft.p99(now), self._tpot.p99(now)

    def _sample_gpu(self) -> None:
        """The share of the last second in which the GPU was busy."""
        s, now = self.signals, self.now
        self._busy.append((now, self.measured.busy))
        while len(self._busy) > 2 and self._busy[0][0] < now - 1.0:
            self._busy.popleft()
        at, busy = self._busy[0]
        s.nvml_at = now
        s.busy_ratio = min(1.0, (self.measured.busy - busy) / (now - at)) if now > at else 0.0
