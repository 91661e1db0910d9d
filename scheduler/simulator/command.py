"""`slackwater simulate`: replay public traffic under every policy and print who kept the promise and what was harvested."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Values
from pathlib import Path
from typing import Final

from scheduler.admission import Mode
from scheduler.simulator.compare import CASES, POLICIES, Case, Line, World, case, compare
from scheduler.simulator.costs import DEFAULT_MODEL, costs
from scheduler.simulator.faults import USES, Drill, What, drill
from scheduler.simulator.report import chart, details, markdown, shares

DEFAULT_FOLDER: Final = Path("benchmarks/traces")
DRILL_SEEDS: Final = 5
DRILL_CASE: Final = Case("conv", 0.25)
DRILLS: Final[tuple[tuple[What, Mode], ...]] = (
    ("engine", "balanced"),
    ("live", "balanced"),
    ("nvml", "strict"),
    ("nvml", "balanced"),
    ("worker", "balanced"),
)


def simulate(
    say: Callable[[str], None],
    *,
    traces: Path = DEFAULT_FOLDER,
    cases: Values[str] = (),
    policies: Values[str] = (),
    replicas: int = 1,
    seconds: float = 1500.0,
    seeds: int = 5,
    model: str = DEFAULT_MODEL,
    charts: Path | None = None,
    faults: bool = True,
) -> list[Line]:
    """Compare policies on cases such as `conv:0.5`; all of them by default. The same arguments give the same figures.

    `traces` is the folder of the traces (`poisson` needs none), `charts` one to write SVG files to. `faults` adds the drills. Returns
    every run, for a caller that wants more than the text given to `say`.

    Raises:
        Misconfigured: a case, a policy or the folder is not known.
    """
    chosen = [case(text) for text in cases] or list(CASES)
    names = list(policies) or list(POLICIES)
    lines: list[Line] = []
    for one in chosen:
        for seed in range(seeds):
            lines += compare(World(one, seed, seconds, traces, costs(model), replicas), names)
    say(shares(lines))
    say(details(lines))
    if charts is not None:
        _draw(charts, lines)
    if faults:
        say(drills(DRILL_CASE if not cases else chosen[0], traces, model))
    return lines


def drills(one: Case, traces: Path, model: str) -> str:
    """The table of faults on one case; the slowest of several seeds."""
    rows = [["fault", "mode", "use", "new batch prompts for", "resumed", "lost"]]
    for what, mode in DRILLS:
        for use in USES:
            found = [drill(what, use, mode, one, traces, costs(model), seed) for seed in range(DRILL_SEEDS)]
            rows.append([what, mode, use, *_worst(found)])
    return markdown(rows)


def _worst(found: Values[Drill]) -> list[str]:
    resumed = sum(d.resumed for d in found)
    fed = max(d.fed_for_seconds for d in found)
    return [f"{fed:.2f} s", f"{resumed} of {len(found)}", str(sum(abs(d.lost) for d in found))]


def _draw(folder: Path, lines: Values[Line]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("headroom.svg").write_text(chart("Batch tokens, per cent of the oracle's", lines), encoding="utf-8")
    for one in dict.fromkeys(line.case for line in lines):
        found = [line for line in lines if line.case == one]
        name = one.name.replace("×", "-")
        folder.joinpath(f"{name}.svg").write_text(
            chart(f"{one.name}: per cent of the oracle's", found), encoding="utf-8"
        )
