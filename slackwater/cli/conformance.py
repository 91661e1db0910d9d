"""`slackwater conformance`: point the checks of the OpenAI wire at any server."""

from __future__ import annotations

from typing import Annotated

import typer


def conformance(
    base_url: Annotated[str, typer.Option(help="The server, with or without its /v1.")],
    model: Annotated[str, typer.Option(help="A model that it serves.")],
    api_key: Annotated[str, typer.Option(envvar="SLACKWATER_API_KEY", help="Sent as a bearer token.")] = "",
    only: Annotated[list[str] | None, typer.Option(help="Only checks whose name begins so; may be repeated.")] = None,
    extensions: Annotated[bool, typer.Option("--ext", help="Also check what this project adds (`ext.…`).")] = False,
    wait_seconds: Annotated[float, typer.Option(min=1, help="How long a batch may take to its end.")] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with every check.")] = False,
) -> None:
    """Check that a server answers as OpenAI does: files, uploads, batches. Exits 1 when a check fails; what it does not offer of ours is no failure.

    The checks upload small files, and create and cancel batches of a few short requests.
    """
    from slackwater.conformance import checks, registry, report, runner
    from slackwater.conformance.session import Shared

    assert checks
    chosen = registry.chosen(only or (), extensions=extensions)
    if not chosen:
        raise typer.BadParameter("no check has such a name", param_hint="--only")
    outcomes = []
    with runner.connect(base_url, api_key) as client:
        for outcome in runner.run(chosen, Shared(client, model, wait_seconds)):
            outcomes.append(outcome)
            if not as_json:
                typer.echo(report.as_text(outcome))
    typer.echo(report.as_json(base_url, outcomes) if as_json else report.summary(outcomes))
    raise typer.Exit(any(outcome.failed for outcome in outcomes))
