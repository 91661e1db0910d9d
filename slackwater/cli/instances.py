"""`slackwater instances`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.administer import administer
from slackwater.cli.output import AsJson, show

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

app = typer.Typer(name="instances", help="Running model servers.", no_args_is_help=True)
COLUMNS = ("public_id", "name", "engine", "url", "models", "gpus", "max_slots", "mode", "has_api_key", "disabled_at")
Named = Annotated[str, typer.Argument(help="Name or id of the instance.")]


def served(models: Sequence[str]) -> dict[str, str]:
    """Our names of models to the server's, from `NAME` or `NAME=NAME-THERE`."""
    pairs = (model.partition("=") for model in models)
    return {name: upstream or name for name, _, upstream in pairs}


def numbers(options: Sequence[str]) -> dict[str, float]:
    """The options from `NAME=NUMBER`.

    Raises:
        BadParameter: one is none of that form.
    """
    pairs = (option.partition("=") for option in options)
    try:
        return {name: float(value) for name, _, value in pairs}
    except ValueError:
        raise typer.BadParameter("an option is NAME=NUMBER") from None


@app.command()
def create(
    name: str,
    model: Annotated[list[str], typer.Option(help="NAME, or NAME=NAME-THERE; may be given again.")],
    engine: Annotated[
        str, typer.Option(help="openai_http (any OpenAI-compatible URL), local or echo.")
    ] = "openai_http",
    url: Annotated[str | None, typer.Option(help="Base URL of the server.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that holds the server's key.")
    ] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="UUID of a GPU it runs on; may be given again.")] = None,
    max_slots: Annotated[int, typer.Option(min=1, help="Most batch requests in flight.")] = 16,
    mode: Annotated[str, typer.Option(help="strict, balanced or deadline.")] = "balanced",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER", help="ttft_seconds, inter_token_seconds, chunk_tokens, prefill_cap_tokens, …"
        ),
    ] = None,
    if_missing: Annotated[bool, typer.Option(help="Leave an instance of this name as it is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Register a model server. A worker beside it then runs `slackwater worker --instance NAME`."""
    from slackwater.cli.place import local_settings
    from slackwater.sealing import sealer_from
    from slackwater.tenancy import instances

    if engine not in ("openai_http", "local", "echo") or mode not in ("strict", "balanced", "deadline"):
        raise typer.BadParameter("unknown engine or mode")
    key = os.environ.get(api_key_env) if api_key_env else None
    new = instances.NewInstance(
        name=name,
        models=served(model),
        engine=engine,  # type: ignore[arg-type]
        url=url,
        api_key=key,
        gpus=gpu or (),
        max_slots=max_slots,
        mode=mode,  # type: ignore[arg-type]
        options=numbers(option or ()),
    )
    sealer = sealer_from(local_settings()) if key else None

    async def act(connection: AsyncConnection) -> dict[str, Any]:
        known = [row for row in await instances.listed(connection) if if_missing and row["name"] == name]
        return known[0] if known else await instances.create(connection, new, sealer)

    show([administer(act)], COLUMNS, as_json=as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the instances, disabled ones too."""
    from slackwater.tenancy import instances

    show(administer(instances.listed), COLUMNS, as_json=as_json)


@app.command()
def disable(instance: Named, as_json: AsJson = False) -> None:
    """Send an instance no more work."""
    from slackwater.tenancy import instances

    show([administer(lambda connection: instances.disable(connection, instance))], COLUMNS, as_json=as_json)


@app.command()
def enable(instance: Named, as_json: AsJson = False) -> None:
    """Send an instance work again."""
    from slackwater.tenancy import instances

    row = administer(lambda connection: instances.disable(connection, instance, disabled=False))
    show([row], COLUMNS, as_json=as_json)
