"""What commands print: a table for a person, JSON for a program; never a secret, never an internal number."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Final

import typer

PIPED_WIDTH: Final = 240
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def show(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print these columns of each row."""
    chosen = [{name: row.get(name) for name in columns} for row in rows]
    if as_json:
        for row in chosen:
            typer.echo(json.dumps(row, default=_plain, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=name == columns[0], overflow="fold")
    for row in chosen:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S%z")
    if isinstance(value, Mapping):
        return ", ".join(name if name == other else f"{name}={other}" for name, other in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(Decimal(value))
