"""`slackwater simulate`: replay traffic under every policy, with the class that decides in production."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    traces: Annotated[Path, typer.Option(help="The folder of the traces; the case `poisson` needs none.")] = Path(
        "benchmarks/traces"
    ),
    case: Annotated[
        list[str] | None, typer.Option(metavar="TRACE:LOAD", help="Such as conv:0.5; may be given again.")
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Only this policy; may be given again.")] = None,
    replicas: Annotated[int, typer.Option(min=1, max=1000, help="Replicas of the engine.")] = 1,
    seconds: Annotated[float, typer.Option(min=1.0, help="How much of each trace.")] = 1500.0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each case; the same seeds give the same figures.")] = 5,
    charts: Annotated[Path | None, typer.Option(help="A folder for SVG charts.")] = None,
    faults: Annotated[bool, typer.Option(help="Also drill missing signals and a killed worker.")] = True,
) -> None:
    """Print who kept the promise to live traffic, and how much batch work each policy harvested. Simulated, not measured."""
    from scheduler.simulator.command import simulate as run

    run(
        typer.echo,
        traces=traces,
        cases=case or (),
        policies=policy or (),
        replicas=replicas,
        seconds=seconds,
        seeds=seeds,
        charts=charts,
        faults=faults,
    )
