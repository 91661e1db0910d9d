"""`slackwater settings`: every setting with its unit, default and reason; `docs/settings.md` is what it prints."""

from __future__ import annotations

import typer

HEAD = """# Settings

Read once from the environment when a process starts. This page is printed by `slackwater settings`.

| variable | default | what it sets |
|---|---|---|
"""


def settings() -> None:
    """Print every setting as a table."""
    typer.echo(page(), nl=False)


def page() -> str:
    """The table, in the order in which the settings stand in the code."""
    from slackwater.settings import Settings

    rows = (
        f"| `SLACKWATER_{name.upper()}` | {_shown(field.default)} | {field.description} |\n"
        for name, field in Settings.model_fields.items()
    )
    return HEAD + "".join(rows)


def _shown(default: object) -> str:
    if default is None:
        return "–"
    return f"`{list(default)}`" if isinstance(default, tuple) else f"`{default}`"
