"""Make the figures of `docs/headroom.md`: `python -m benchmarks.headroom` (about ten minutes on one core)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from scheduler.simulator.command import simulate
from scheduler.simulator.compare import CASES, World, first_come
from scheduler.simulator.costs import costs

TRACES: Final = Path(__file__).parent / "traces"
CHARTS: Final = Path("docs/charts")
SECONDS: Final = 1500.0


def main() -> None:
    """Five seeds of ours and the drills of faults; every policy over one seed, with charts; vLLM's own order, beside live alone on it."""
    simulate(print, traces=TRACES, seeds=5, policies=["nvml-poll", "upstream", "upstream-uncapped", "in-engine"])
    simulate(print, traces=TRACES, seeds=1, charts=CHARTS, faults=False)
    for case in CASES:
        for seed in range(5):
            line = first_come(World(case, seed, SECONDS, TRACES, costs()))
            print(
                f"{case.name}, seed {seed}, first come: {line.share:.2f} of the oracle, "
                f"first token {line.figures.ttft_p99 / line.alone.ttft_p99:.2f} × alone, {'broken' if line.is_broken else 'kept'}, "
                f"starts end {line.figures.stop_p99 * 1000:.0f} ms and reading {line.figures.tail_p99 * 1000:.0f} ms after a burst"
            )


if __name__ == "__main__":
    main()
