"""Compare the simulator's cost model with measured rows: `python -m benchmarks.costs`."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Final

from scheduler.simulator.costs import Costs, costs
from scheduler.simulator.engine import Replica
from scheduler.simulator.iteration import Limits, Sequence
from scheduler.simulator.traces import seeded

ROWS: Final = Path(__file__).parent / "traces/calibration/llama31_70b_vllm.csv"
CACHE_TOKENS: Final = {("h200", "1"): 200_000, ("h200", "2"): 560_000, ("h100", "2"): 230_000}
CHUNK_TOKENS: Final = 2048
ROUNDS: Final = 3
CANDIDATES: Final = ((0.5, 0.02), (1.0, 0.02), (1.0, 0.05), (2.0, 0.02))


def closed_loop(costs: Costs, isl: int, osl: int, clients: int, cache: int = 560_000) -> tuple[float, float]:
    """Mean milliseconds (per output token, to the first token) of `clients` that each send the next request as one ends.

    The first answers are cut at random lengths, so that clients do not march in step.
    """
    replica, random, now = Replica(costs, Limits(CHUNK_TOKENS, CHUNK_TOKENS, cache)), seeded(1), 0.0
    for i in range(clients):
        replica.arrive(Sequence(i, isl, random.randint(2, osl), 0.0, is_live=True))
    tpot: list[float] = []
    ttft: list[float] = []
    sent = clients
    while len(tpot) < ROUNDS * clients:
        it = replica.step(0, now)
        now += it.ms
        ttft += [now - s.arrived_at for s in it.first_live]
        for s in it.first_live:
            s.first_at = now
        for s in it.ended_live:
            tpot.append((now - s.first_at) / (s.output - 1))
            replica.arrive(Sequence(sent, isl, osl, now, is_live=True))
            sent += 1
    return fmean(tpot), fmean(ttft)


def main() -> None:
    """Print the median and the 90th percentile of the error for each candidate overhead and system."""
    with ROWS.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for per_iteration, per_sequence in CANDIDATES:
        for (system, tp), cache in CACHE_TOKENS.items():
            model = replace(costs(f"70b-fp8-{system}-tp{tp}"), per_iteration=per_iteration, per_sequence=per_sequence)
            errors, factors = [], []
            for row in (r for r in rows if (r["system"], r["tp"]) == (system, tp)):
                tpot, ttft = closed_loop(model, int(row["isl"]), int(row["osl"]), int(row["concurrency"]), cache)
                errors.append(abs(tpot / float(row["tpot_ms"]) - 1))
                factors.append(float(row["ttft_ms"]) / ttft)
            errors.sort()
            print(
                f"{per_iteration} ms + {per_sequence} ms a sequence, {system} × {tp}: time per token off by"
                f" {median(errors):.1%} (p90 {errors[int(0.9 * len(errors))]:.1%}); first token measured / model {median(factors):.2f}"
            )


if __name__ == "__main__":
    main()
