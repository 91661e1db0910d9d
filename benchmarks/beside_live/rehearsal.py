"""The live benchmark in the simulator, in seconds instead of minutes: `python -m benchmarks.beside_live.rehearsal`.

The same chats, stretches and batch requests, on a replica that schedules as vLLM's V1 does and takes the time that its CPU build was
measured to take. The policy is the production class; its objectives are not set, but learned while chat runs alone, as they are live.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from benchmarks.beside_live.figures import Tail, rate
from benchmarks.beside_live.load import TRACE_SECONDS, Stretch, chats, shorter, stretches
from benchmarks.beside_live.report import TTFT_FACTOR, TTFT_MARGIN_SECONDS
from scheduler.admission import Admit, Objectives, Policy
from scheduler.simulator.backlog import Backlog
from scheduler.simulator.costs import LARGEST, Costs
from scheduler.simulator.iteration import Iteration, Limits
from scheduler.simulator.ours import OverUpstream, obey, own, readings
from scheduler.simulator.replay import Replay
from scheduler.simulator.traces import Arrival, batch_work, load, seeded

Rule = Literal["ours", "always"]
RULES: Final[tuple[Rule, Rule]] = ("ours", "always")
TRACES: Final = Path(__file__).parents[1] / "traces"
ITERATION_MS: Final = 31.0
SEQUENCE_MS: Final = 1.45
TOKEN_MS: Final = 0.32
KV_TOKENS: Final = 46_592
CHUNK: Final = 256
SEQUENCES: Final = 32
SLOTS: Final = 16
TEMPLATE_TOKENS: Final = 36
PAUSE_SECONDS: Final = 6.0
WITHOUT_END: Final = 1 << 30
LIMITS: Final = Limits(CHUNK, CHUNK, KV_TOKENS, SEQUENCES, first_come=True)
SLOW: Final = Costs(
    tuple(TOKEN_MS * n for n in range(LARGEST + 1)),
    (0.0,) * (LARGEST + 1),
    (0.0, 0.0),
    (0.0, SEQUENCE_MS - TOKEN_MS, 0.0),
    ITERATION_MS,
    0.0,
)


@dataclass(frozen=True, slots=True)
class Edge:
    """What was done by the begin of a stretch: batch tokens, and first tokens of chats."""

    tokens: int
    first_tokens: int


class Rehearsed(OverUpstream):
    """`rule` is ours, or `always`: every slot, whatever is read. Batch work is there from `opens_at` on; `left` are edges yet to be noted."""

    def __init__(self, rule: Rule, opens_at: float, edges: Sequence[float]) -> None:
        super().__init__(Policy(SLOTS, chunk_tokens=CHUNK, objectives=Objectives()), rule)
        self.opens_at, self.left, self.noted = opens_at, list(edges), list[Edge]()

    def tick(self, replay: Replay) -> None:
        decision = self.headroom.decide(readings(replay), own(replay), replay.now)
        if self.name == "always":
            decision = Admit(SLOTS, WITHOUT_END)
        obey(replay, decision)
        if isinstance(decision, Admit) and replay.now >= self.opens_at:
            self._feed(replay, decision)
        replay.look_again(self.headroom.again_seconds)
        self._note(replay)

    def after(self, replay: Replay, it: Iteration) -> None:
        self._note(replay)

    def _note(self, replay: Replay) -> None:
        m = replay.measured
        while self.left and replay.now >= self.left[0]:
            self.left.pop(0)
            self.noted.append(Edge(m.prompt_tokens + m.output_tokens, len(m.ttft)))


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """First tokens of chat alone and beside batch work, in seconds; batch tokens a second in idle and in busy stretches."""

    alone: Tail
    beside: Tail
    idle_rate: float
    busy_rate: float
    wasted_ratio: float

    @property
    def ratio(self) -> float:
        """99th percentiles of first tokens, over what they are alone."""
        return self.beside.p99 / self.alone.p99

    @property
    def of_allowed(self) -> float:
        """Over what the aim allows."""
        return self.beside.p99 / (TTFT_FACTOR * self.alone.p99 + TTFT_MARGIN_SECONDS)


def rehearse(rule: Rule, seed: int, times: int = 3, stretch: float = 20.0, share: float = 0.4) -> Rehearsal:
    """Chat alone, a pause, then the same chat beside batch work; `times` busy and idle stretches each."""
    phase = stretches(times, stretch)
    seconds = phase[-1].end
    begin = seconds + PAUSE_SECONDS
    strategy = Rehearsed(rule, seconds, [seconds, *(begin + s.begin for s in phase), begin + seconds])
    arrivals = [a for at in (0.0, begin) for a in _chats(phase, share, seed, at)]
    m = Replay(arrivals, Backlog(_batch(seed)), strategy, SLOW, LIMITS, begin + seconds + 1.0, seed=seed).run()
    end, *edges = strategy.noted
    done = [after.tokens - before.tokens for before, after in pairwise(edges)]
    alone, beside = Tail.of(m.ttft[: end.first_tokens]), Tail.of(m.ttft[end.first_tokens :])
    assert alone is not None
    assert beside is not None
    wasted = m.wasted_tokens / max(1, m.prompt_tokens + m.output_tokens)
    return Rehearsal(alone, beside, rate(done, phase, busy=False) or 0.0, rate(done, phase, busy=True) or 0.0, wasted)


def _chats(phase: Sequence[Stretch], share: float, seed: int, at: float) -> list[Arrival]:
    offered = chats(load("conv", TRACES, TRACE_SECONDS), phase, share, seed)
    return [Arrival(at + a.at, a.prompt + TEMPLATE_TOKENS, a.output) for a in offered]


def _batch(seed: int) -> Iterator[tuple[int, int]]:
    for lengths in batch_work(seeded(seed, 7)):
        prompt, output = shorter(*lengths)
        yield prompt + TEMPLATE_TOKENS, output


def table(seeds: int, times: int = 3) -> Iterator[str]:
    """Markdown, a line a seed."""
    yield "| seed | alone p99, ms | beside | of allowed | ungated × alone | idle, of batch alone | with chat | wasted |"
    yield "|---" * 8 + "|"
    for seed in range(1, seeds + 1):
        ours, always = (rehearse(rule, seed, times) for rule in RULES)
        most = (always.idle_rate + always.busy_rate) / 2
        yield (
            f"| {seed} | {1000 * ours.alone.p99:.0f} | {1000 * ours.beside.p99:.0f} | {ours.of_allowed:.2f} | {always.ratio:.1f} "
            f"| {ours.idle_rate / most:.0%} | {ours.busy_rate / most:.0%} | {ours.wasted_ratio:.1%} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--times", type=int, default=3, help="busy and idle stretches of a phase")
    arguments = parser.parse_args()
    for line in table(arguments.seeds, arguments.times):
        print(line, flush=True)


if __name__ == "__main__":
    main()
