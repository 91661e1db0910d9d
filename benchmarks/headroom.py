"""Make the figures of `docs/headroom.md`: `python -m benchmarks.headroom` (about ten minutes on one core).

Some of it with `--parts five,every,faults,first-come,rehearsal`, and some traces only with `--cases conv:1,code:0.15`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.beside_live import rehearsal
from scheduler.simulator.command import DRILL_CASE, drills, simulate
from scheduler.simulator.compare import CASES, Case, World, case, first_come
from scheduler.simulator.costs import DEFAULT_MODEL, costs

TRACES: Final = Path(__file__).parent / "traces"
CHARTS: Final = Path("docs/charts")
SECONDS: Final = 1500.0
SEEDS: Final = 5
REHEARSED_SEEDS: Final = 12
OURS: Final = ("nvml-poll", "upstream", "upstream-uncapped", "in-engine")


def five(cases: Sequence[str]) -> None:
    """Five seeds of ours."""
    simulate(print, traces=TRACES, cases=cases, seeds=SEEDS, policies=OURS, faults=False)


def every(cases: Sequence[str]) -> None:
    """Every policy over one seed, with charts where all traces are asked for."""
    simulate(print, traces=TRACES, cases=cases, seeds=1, charts=None if cases else CHARTS, faults=False)


def faults(_: Sequence[str]) -> None:
    print(drills(DRILL_CASE, TRACES, DEFAULT_MODEL))


def as_vllm_does(cases: Sequence[str]) -> None:
    """vLLM's own order, beside live alone on it."""
    for one in [case(text) for text in cases] or CASES:
        for seed in range(SEEDS):
            print(_first_come(one, seed), flush=True)


def _first_come(one: Case, seed: int) -> str:
    line = first_come(World(one, seed, SECONDS, TRACES, costs()))
    found, alone, owed = line.figures, line.alone, line.promise
    return (
        f"{one.name}, seed {seed}, first come: {line.share:.2f} of the oracle, first token {found.ttft_p99 / alone.ttft_p99:.2f} × alone, "
        f"{found.ttft_p99 / owed.ttft:.2f} of its objective, {'broken' if line.is_broken else 'kept'}, {found.wasted_ratio:.1%} wasted, "
        f"starts end {found.stop_p99 * 1000:.0f} ms and reading {found.tail_p99 * 1000:.0f} ms after a burst"
    )


def slow(_: Sequence[str]) -> None:
    """The live benchmark on vLLM's CPU build, in the simulator."""
    print("\n".join(rehearsal.table(REHEARSED_SEEDS)))


PARTS: Final[dict[str, Callable[[Sequence[str]], None]]] = {
    "five": five,
    "every": every,
    "faults": faults,
    "first-come": as_vllm_does,
    "rehearsal": slow,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between")
    parser.add_argument("--cases", default="", help="with commas between; all five by default")
    arguments = parser.parse_args()
    for part in arguments.parts.split(","):
        PARTS[part]([text for text in arguments.cases.split(",") if text])


if __name__ == "__main__":
    main()
