"""The live benchmark in the simulator, in seconds instead of minutes: `python -m benchmarks.beside_live.rehearsal`.

The same chats, stretches and batch requests, on a replica that schedules as vLLM's V1 does and takes the time that its CPU build was
measured to take. The policy is the production class; its objectives are not set, but learned while chat runs alone, as they are live.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.beside_live.load import TRACE_SECONDS, Stretch, chats, shorter, stretches
from scheduler.admission import Admit, Objectives, Policy
from scheduler.simulator.backlog import Backlog
from scheduler.simulator.costs import LARGEST, Costs
from scheduler.simulator.figures import percentile
from scheduler.simulator.iteration import Iteration, Limits
from scheduler.simulator.ours import OverUpstream, obey, own, readings
from scheduler.simulator.replay import Replay
from scheduler.simulator.traces import Arrival, batch_work, load, seeded

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
LIMITS: Final = Limits(CHUNK, CHUNK, KV_TOKENS, SEQUENCES, first_come=True)
SLOW: Final = Costs(
    tuple(TOKEN_MS * n for n in range(LARGEST + 1)),
    (0.0,) * (LARGEST + 1),
    (0.0, 0.0),
    (0.0, SEQUENCE_MS - TOKEN_MS, 0.0),
    ITERATION_MS,
    0.0,
)


@dataclass
class Edge:
    """What was done by the begin of a stretch."""

    at: float
    tokens: int
    first_tokens: int
    gaps: int


class Rehearsed(OverUpstream):
    """`rule` is ours, or `always`: every slot, whatever is read. Batch work is there from `opens_at` on; `edges` are noted."""

    def __init__(self, rule: str, opens_at: float, edges: Sequence[float]) -> None:
        super().__init__(Policy(SLOTS, chunk_tokens=CHUNK, objectives=Objectives()), rule)
        self.opens_at, self.left, self.seen = opens_at, list(edges), list[Edge]()

    def tick(self, replay: Replay) -> None:
        decision = self.headroom.decide(readings(replay), own(replay), replay.now)
        if self.name == "always":
            decision = Admit(SLOTS, 1 << 30)
        obey(replay, decision)
        if isinstance(decision, Admit) and replay.now >= self.opens_at:
            self._feed(replay, decision)
        replay.look_again(self.headroom.reading_seconds)
        self._note(replay)

    def after(self, replay: Replay, it: Iteration) -> None:
        self._note(replay)

    def _note(self, replay: Replay) -> None:
        m = replay.measured
        while self.left and replay.now >= self.left[0]:
            self.seen.append(Edge(self.left.pop(0), m.prompt_tokens + m.output_tokens, len(m.ttft), 0))


def backlog(seed: int) -> Iterator[tuple[int, int]]:
    for prompt, output in batch_work(seeded(seed, 7)):
        short, out = shorter(prompt, output)
        yield short + TEMPLATE_TOKENS, out


@dataclass
class Rehearsal:
    """First tokens in seconds, batch tokens a second, holds by reason."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    idle_rate: float = 0.0
    busy_rate: float = 0.0
    wasted_ratio: float = 0.0


def rehearse(rule: str, seed: int, times: int = 3, stretch: float = 20.0, share: float = 0.4) -> Rehearsal:
    """Chat alone, a pause, then the same chat beside batch work."""
    phase = stretches(times, stretch)
    seconds = phase[-1].end
    offered = [Arrival(a.at, a.prompt + TEMPLATE_TOKENS, a.output) for a in _chats(phase, share, seed)]
    begin = seconds + PAUSE_SECONDS
    arrivals = offered + [Arrival(begin + a.at, a.prompt, a.output) for a in offered]
    edges = [0.0, seconds, *(begin + s.begin for s in phase), begin + seconds]
    strategy = Rehearsed(rule, seconds, edges)
    replay = Replay(arrivals, Backlog(backlog(seed)), strategy, SLOW, LIMITS, begin + seconds + 1.0, seed=seed)
    m = replay.run()
    _, end, *marks = strategy.seen
    done = [b.tokens - a.tokens for a, b in zip(marks, marks[1:], strict=False)]
    found = Rehearsal(m.ttft[: end.first_tokens], m.ttft[end.first_tokens :])
    found.idle_rate = sum(n for n, s in zip(done, phase, strict=True) if not s.is_busy) / (times * stretch)
    found.busy_rate = sum(n for n, s in zip(done, phase, strict=True) if s.is_busy) / (times * stretch)
    found.wasted_ratio = m.wasted_tokens / max(1, m.prompt_tokens + m.output_tokens)
    return found


def _chats(phase: Sequence[Stretch], share: float, seed: int) -> list[Arrival]:
    return chats(load("conv", TRACES, TRACE_SECONDS), phase, share, seed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    for seed in range(1, arguments.seeds + 1):
        alone = rehearse("always", seed, arguments.times)
        ours = rehearse("ours", seed, arguments.times)
        p = [1000 * percentile(v, q) for v in (ours.alone, ours.beside, alone.beside) for q in (0.5, 0.95, 0.99)]
        print(seed, [round(x) for x in p], f"ttft {p[5]/p[2]:.2f} ungated {p[8]/p[2]:.2f} idle {ours.idle_rate:.0f} of {alone.idle_rate:.0f} {ours.idle_rate/alone.idle_rate:.0%} busy {ours.busy_rate:.0f} of {alone.busy_rate:.0f}")


if __name__ == "__main__":
    main()
