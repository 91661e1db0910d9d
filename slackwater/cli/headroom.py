"""`slackwater headroom`: a live view of what live traffic leaves on each instance, what was decided, and why."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.administer import administer

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("instance", "mode", "worker", "live", "ttft p99", "token p99", "batch", "may use", "decision", "why")
FRESH_SECONDS = 5.0


def headroom(
    once: Annotated[bool, typer.Option(help="Print once and end.")] = False,
    every_seconds: Annotated[float, typer.Option(min=0.2, help="How often to look.")] = 1.0,
) -> None:
    """Watch headroom: live load, own load, budget, decision and its reason, worker by worker, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from slackwater.storage.headroom_view import workers

    if once:
        Console().print(table(administer(workers)))
        return
    try:
        with Live(table(administer(workers)), screen=False, auto_refresh=False) as live:
            while True:
                time.sleep(every_seconds)
                live.update(table(administer(workers)), refresh=True)
    except KeyboardInterrupt:
        return


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows as a person reads them."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        shown.add_column(name, overflow="fold")
    for row in rows:
        shown.add_row(*cells(row))
    return shown


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One worker's line. A decision that is older than five seconds says nothing."""
    decision, why = said(row)
    return (
        row["instance"],
        row["mode"],
        "-" if row["worker"] is None else f"{row['worker']}@{row['host']}",
        f"{row['live_running'] or 0} running, {row['live_waiting'] or 0} waiting",
        _seconds(row["ttft"]),
        _seconds(row["itl"]),
        f"{row['in_flight'] or 0} running",
        f"{row['granted'] or 0} of {row['max_slots']} slots",
        decision,
        why,
    )


def said(row: Mapping[str, Any]) -> tuple[str, str]:
    """(admit or hold, the reason in words)."""
    from slackwater.explain import SENTENCES, Reason

    if row["worker"] is None:
        return "-", SENTENCES[Reason.NO_WORKER]
    if row["age_seconds"] is None or row["age_seconds"] > FRESH_SECONDS:
        return "-", "its last decision is too old to stand on"
    if row["admitted"]:
        return "admit", ""
    return "hold", f"{row['reason']}: {row['message'] or SENTENCES[Reason(row['reason'])]}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:.0f} ms"
