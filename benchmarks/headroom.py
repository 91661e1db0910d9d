"""Make the figures of `docs/headroom.md`: `python -m benchmarks.headroom` (about six minutes on one core)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from scheduler.simulator.command import simulate

TRACES: Final = Path(__file__).parent / "traces"
CHARTS: Final = Path("docs/charts")


def main() -> None:
    """Our two uses over five seeds with the drills of faults, then every policy over one seed with the charts."""
    simulate(print, traces=TRACES, seeds=5, policies=["nvml-poll", "upstream", "in-engine"])
    simulate(print, traces=TRACES, seeds=1, charts=CHARTS, faults=False)


if __name__ == "__main__":
    main()
