"""`slackwater migrate`."""

from __future__ import annotations

from typing import Annotated

import typer


def migrate(
    phase: Annotated[
        str | None, typer.Option(help="`pre` stops before the next revision that needs the new code; `post` goes on.")
    ] = None,
    down: Annotated[str | None, typer.Option(help="Go down to this revision; `base` leaves an empty database.")] = None,
) -> None:
    """Bring the database to the newest revision, and print the one reached. Two at once do no harm."""
    from slackwater.cli.place import local_settings
    from slackwater.storage import migrate as revisions

    if phase not in (None, "pre", "post"):
        raise typer.BadParameter("the phase is pre or post")
    if phase and down:
        raise typer.BadParameter("--down takes no phase")
    dsn = local_settings().dsn
    reached = revisions.downgrade(dsn, down) if down else revisions.upgrade(dsn, phase)  # type: ignore[arg-type]
    typer.echo(reached or "base")
