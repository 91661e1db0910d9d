"""`slackwater models`."""

from __future__ import annotations

from typing import Annotated

import typer

from slackwater.cli.administer import administer
from slackwater.cli.output import AsJson, show

app = typer.Typer(name="models", help="Which models exist and who may use them.", no_args_is_help=True)
COLUMNS = ("name", "is_open", "created_at")
Tenant = Annotated[str, typer.Option(help="Name or id of the tenant.")]


@app.command()
def create(
    name: str,
    open_: Annotated[bool, typer.Option("--open/--closed", help="For every tenant, or for allowed ones.")] = True,
    as_json: AsJson = False,
) -> None:
    """Make a model, or change who may use it."""
    from slackwater.tenancy import models

    show([administer(lambda connection: models.ensure(connection, name, is_open=open_))], COLUMNS, as_json=as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the models."""
    from slackwater.tenancy import models

    show(administer(models.listed), COLUMNS, as_json=as_json)


@app.command()
def allow(name: str, tenant: Tenant) -> None:
    """Let a tenant use a closed model."""
    from slackwater.tenancy import models

    administer(lambda connection: models.allow(connection, name, tenant))


@app.command()
def disallow(name: str, tenant: Tenant) -> None:
    """Take the use of a closed model from a tenant."""
    from slackwater.tenancy import models

    administer(lambda connection: models.allow(connection, name, tenant, allowed=False))
