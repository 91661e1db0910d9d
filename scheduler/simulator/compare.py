"""Every policy on the same traffic: live requests alone, fixed concurrency, gates on metrics, ours, and an oracle as the measure."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Values
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.simulator import traces
from scheduler.simulator.backlog import Backlog
from scheduler.simulator.costs import Costs
from scheduler.simulator.figures import Figures, summed
from scheduler.simulator.iteration import Limits
from scheduler.simulator.others import (
    Aimd,
    AlwaysOn,
    NightWindow,
    NvmlGate,
    NvmlPoll,
    Oracle,
    Saturation,
    quietest,
)
from scheduler.simulator.ours import InEngine, OverUpstream, policy
from scheduler.simulator.replay import Replay, Strategy
from scheduler.simulator.signals import Fault
from scheduler.simulator.traces import Arrival
from slackwater.errors import Misconfigured

BATCH_CAP_TOKENS: Final = 256
TTFT_FACTOR: Final = 1.3
TTFT_MARGIN_SECONDS: Final = 0.15
INTER_TOKEN_SECONDS: Final = {"code": 0.075}
DEFAULT_INTER_TOKEN_SECONDS: Final = 0.065
ORACLE_STEP_MS: Final = 5
FIRST_TARGET: Final = 4


@dataclass(frozen=True, slots=True)
class Case:
    """A trace at a share of its arrivals."""

    trace: str
    share: float

    @property
    def name(self) -> str:
        return f"{self.trace}×{self.share:g}"

    @property
    def inter_token_seconds(self) -> float:
        return INTER_TOKEN_SECONDS.get(self.trace, DEFAULT_INTER_TOKEN_SECONDS)


CASES: Final = (Case("conv", 1.0), Case("conv", 0.5), Case("conv", 0.25), Case("code", 0.35), Case("code", 0.15))


def case(text: str) -> Case:
    """A case as a person writes it: `conv:0.5`.

    Raises:
        Misconfigured: the share is no positive number.
    """
    trace, _, share = text.partition(":")
    try:
        value = float(share or "1")
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise Misconfigured(f"{text}: write a trace and the share of its arrivals, such as conv:0.5")
    return Case(trace, value)


@dataclass(frozen=True, slots=True)
class Promise:
    """What live requests are owed on a case: 99th percentiles in seconds."""

    ttft: float
    inter_token: float

    def broken_by(self, f: Figures) -> bool:
        return f.ttft_p99 > self.ttft or f.tpot_p99_ms > 1000 * self.inter_token


@dataclass
class World:
    """One case and seed on `replicas` engines: the same arrivals and backlog for every policy."""

    case: Case
    seed: int
    seconds: float
    folder: Path
    costs: Costs
    replicas: int = 1
    faults: Values[Fault] = ()
    arrivals: list[list[Arrival]] = field(default_factory=list)

    def __post_init__(self) -> None:
        every = traces.load(self.case.trace, self.folder, self.seconds, self.seed)
        self.arrivals = [traces.thin(every, self.case.share, traces.seeded(self.seed, i)) for i in range(self.replicas)]

    def run(self, make: Callable[[list[Arrival]], Strategy], limits: Limits | None = None) -> Figures:
        """One policy on all replicas."""
        runs, finished, name = [], 0, ""
        for i, arrivals in enumerate(self.arrivals):
            backlog = Backlog(traces.batch_work(traces.seeded(self.seed, i, 1)))
            strategy = make(arrivals)
            replay = Replay(
                arrivals,
                backlog,
                strategy,
                self.costs,
                limits or Limits(),
                self.seconds,
                seed=self.seed + i,
                faults=self.faults,
            )
            runs.append(replay.run())
            finished += len(backlog.finished)
            name = strategy.name
        return summed(name, runs, self.seconds, finished)

    def promise(self, alone: Figures) -> Promise:
        """1.3 × the first-token time of live traffic alone or 0.15 s more, and the trace's inter-token objective."""
        ttft = max(TTFT_FACTOR * alone.ttft_p99, alone.ttft_p99 + TTFT_MARGIN_SECONDS)
        return Promise(ttft, self.case.inter_token_seconds)

    def oracle(self, promise: Promise) -> Figures:
        """The highest target, in steps of 5 ms, that keeps the promise: found in hindsight by halving, since both grow with it."""
        low, high = FIRST_TARGET, int(promise.inter_token * 1100) // ORACLE_STEP_MS
        best = self._aim(low)
        while low < high:
            middle = (low + high + 1) // 2
            found = self._aim(middle)
            if promise.broken_by(found):
                high = middle - 1
            else:
                low, best = middle, found
        return best

    def _aim(self, steps: int) -> Figures:
        return self.run(lambda _: Oracle(float(steps * ORACLE_STEP_MS)))


@dataclass(frozen=True, slots=True)
class Line:
    """One policy on one case and seed, beside what it is measured by."""

    case: Case
    seed: int
    figures: Figures
    alone: Figures
    oracle: Figures
    promise: Promise

    @property
    def share(self) -> float:
        """Of the oracle's batch tokens."""
        best = self.oracle.batch_tokens_per_second
        return self.figures.batch_tokens_per_second / best if best else 0.0

    @property
    def is_broken(self) -> bool:
        return self.promise.broken_by(self.figures)


Maker = Callable[[World, Promise], Figures]


def _plain(strategy: Callable[[World], Strategy]) -> Maker:
    return lambda world, _: world.run(lambda _: strategy(world))


def _upstream(world: World, promise: Promise) -> Figures:
    limits = Limits(cap=BATCH_CAP_TOKENS)
    return world.run(lambda _: OverUpstream(policy(promise.ttft, promise.inter_token, limits)), limits)


def _upstream_uncapped(world: World, promise: Promise) -> Figures:
    limits = Limits()
    allowed = policy(promise.ttft, promise.inter_token, limits)
    return world.run(lambda _: OverUpstream(allowed, "ours over an upstream, no cap"), limits)


def first_come(world: World) -> Line:
    """Ours over an engine that schedules as vLLM's V1 does, with its cap on every prompt; the promise is reckoned on that engine."""
    limits = Limits(cap=BATCH_CAP_TOKENS, first_come=True)
    alone = world.run(lambda _: AlwaysOn(0), limits)
    promise = world.promise(alone)
    allowed = policy(promise.ttft, promise.inter_token, limits)
    found = world.run(lambda _: OverUpstream(allowed, "ours over vLLM, first come"), limits)
    oracle = world.oracle(world.promise(world.run(lambda _: AlwaysOn(0))))
    return Line(world.case, world.seed, found, alone, oracle, promise)


def _in_engine(world: World, promise: Promise) -> Figures:
    limits = Limits()
    return world.run(lambda _: InEngine(policy(promise.ttft, promise.inter_token, limits)), limits)


def _night(world: World, _: Promise) -> Figures:
    return world.run(lambda arrivals: NightWindow(64, begins_at=quietest(arrivals, world.seconds)))


POLICIES: Final[dict[str, Maker]] = {
    "always-64": _plain(lambda _: AlwaysOn(64)),
    "always-16": _plain(lambda _: AlwaysOn(16)),
    "always-4": _plain(lambda _: AlwaysOn(4)),
    "night": _night,
    "nvml-gate": _plain(lambda _: NvmlGate(16)),
    "nvml-poll": _plain(lambda _: NvmlPoll(32)),
    "aimd": _plain(lambda _: Aimd()),
    "saturation-16": _plain(lambda _: Saturation(16)),
    "saturation-4": _plain(lambda _: Saturation(4)),
    "upstream": _upstream,
    "upstream-uncapped": _upstream_uncapped,
    "in-engine": _in_engine,
}


def compare(world: World, names: Values[str]) -> list[Line]:
    """Live alone and the oracle first, then each policy by name.

    Raises:
        Misconfigured: a name is not known.
    """
    for name in names:
        if name not in POLICIES:
            raise Misconfigured(f"no policy is called {name}; known are {', '.join(POLICIES)}")
    alone = world.run(lambda _: AlwaysOn(0))
    promise = world.promise(alone)
    oracle = world.oracle(promise)
    found = [alone, oracle, *(POLICIES[name](world, promise) for name in names)]
    return [Line(world.case, world.seed, f, alone, oracle, promise) for f in found]
