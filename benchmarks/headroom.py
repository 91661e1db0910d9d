"""Make the figures of `docs/headroom.md`: `python -m benchmarks.headroom` (about ten minutes on one core)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from scheduler.simulator.command import simulate
from scheduler.simulator.compare import CASES, World, upstream_against_the_same_engine
from scheduler.simulator.costs import costs

TRACES: Final = Path(__file__).parent / "traces"
CHARTS: Final = Path("docs/charts")
SECONDS: Final = 1500.0


def main() -> None:
    """Five seeds of ours and the drills of faults; every policy over one seed, with charts; the cap on all prompts against its own engine."""
    simulate(print, traces=TRACES, seeds=5, policies=["nvml-poll", "upstream", "upstream-uncapped", "in-engine"])
    simulate(print, traces=TRACES, seeds=1, charts=CHARTS, faults=False)
    for case in CASES:
        for seed in range(2):
            world = World(case, seed, SECONDS, TRACES, costs())
            alone, ours, promise = upstream_against_the_same_engine(world)
            said = "broken" if promise.broken_by(ours) else "kept"
            print(
                f"{case.name}, seed {seed}, all prompts capped: first token {ours.ttft_p99 / alone.ttft_p99:.2f} × alone, {said}"
            )


if __name__ == "__main__":
    main()
