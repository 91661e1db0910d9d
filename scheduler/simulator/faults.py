"""What happens when a signal stops or the worker dies: how soon nothing new begins, and that no request is lost or run twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from scheduler.admission import Mode
from scheduler.simulator import traces
from scheduler.simulator.backlog import Backlog
from scheduler.simulator.compare import BATCH_CAP_TOKENS, Case
from scheduler.simulator.costs import Costs
from scheduler.simulator.iteration import Iteration, Limits
from scheduler.simulator.ours import InEngine, OverUpstream, policy
from scheduler.simulator.replay import Replay
from scheduler.simulator.signals import Fault

What = Literal["engine", "live", "nvml", "worker"]
Use = Literal["upstream", "first-come", "in-engine"]
USES: Final[dict[Use, Limits]] = {
    "upstream": Limits(cap=BATCH_CAP_TOKENS),
    "first-come": Limits(cap=BATCH_CAP_TOKENS, first_come=True),
    "in-engine": Limits(),
}
AT_SECONDS: Final = 60.0
FOR_SECONDS: Final = 30.0
SECONDS: Final = 150.0


@dataclass(frozen=True, slots=True)
class Drill:
    """One fault: seconds from its begin to the last batch prompt that was started or computed while it lasted, and what came after."""

    what: What
    use: Use
    mode: Mode
    fed_for_seconds: float
    resumed: bool
    lost: int


@dataclass
class Watch:
    """Notes the last time batch prompts were fed during the fault."""

    fault: Fault
    last: float = 0.0
    after: bool = False

    def note(self, at: float) -> None:
        if self.fault.at <= at < self.fault.at + self.fault.seconds:
            self.last = max(self.last, at)
        self.after = self.after or at >= self.fault.at + self.fault.seconds


def drill(what: What, use: Use, mode: Mode, case: Case, folder: Path, costs: Costs, seed: int = 0) -> Drill:
    """Run one fault on a case: over an upstream that reads live prompts first, over one that reads as vLLM does, or in our engine."""
    fault = Fault(what, AT_SECONDS, FOR_SECONDS)
    limits = USES[use]
    allowed = policy(1.0, case.inter_token_seconds, limits, mode)
    strategy = InEngine(allowed) if use == "in-engine" else OverUpstream(allowed)
    arrivals = traces.thin(traces.load(case.trace, folder, SECONDS, seed), case.share, traces.seeded(seed))
    backlog = Backlog(traces.batch_work(traces.seeded(seed, 1)))
    replay = Replay(arrivals, backlog, strategy, costs, limits, SECONDS, seed=seed, faults=[fault])
    watch = Watch(fault)
    _watch(replay, watch, in_slices=use == "in-engine")
    replay.run()
    accounted = len(backlog.finished) + replay.own + len(backlog.returned)
    return Drill(what, use, mode, max(0.0, watch.last - fault.at), watch.after, backlog.taken - accounted)


def _watch(replay: Replay, watch: Watch, *, in_slices: bool) -> None:
    """A start counts over an upstream, a computed prompt token in an engine of our own."""
    after, start = replay.strategy.after, replay.start

    def started(*, whole: bool = True) -> int:
        if not in_slices:
            watch.note(replay.now)
        return start(whole=whole)

    def computed(replay: Replay, it: Iteration) -> None:
        if in_slices and it.own_prompt:
            watch.note(replay.now - it.ms / 1000)
        after(replay, it)

    replay.start = started  # type: ignore[method-assign]
    replay.strategy.after = computed  # type: ignore[method-assign]
