"""`slackwater tenants`."""

from __future__ import annotations

from typing import Annotated

import typer

from slackwater.cli.administer import administer
from slackwater.cli.output import AsJson, show

app = typer.Typer(name="tenants", help="Who uses this installation.", no_args_is_help=True)
COLUMNS = ("public_id", "name", "weight", "created_at", "suspended_at")
Named = Annotated[str, typer.Argument(help="Name or id of the tenant.")]


@app.command()
def create(
    name: str,
    weight: Annotated[int, typer.Option(min=1, help="Its share among tenants.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make a tenant, with a project named `default`."""
    from slackwater.tenancy import tenants

    show([administer(lambda connection: tenants.create(connection, name, weight=weight))], COLUMNS, as_json=as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the tenants."""
    from slackwater.tenancy import tenants

    show(administer(tenants.listed), COLUMNS, as_json=as_json)


@app.command()
def suspend(tenant: Named, as_json: AsJson = False) -> None:
    """Refuse all keys of a tenant."""
    from slackwater.tenancy import tenants

    show([administer(lambda connection: tenants.suspend(connection, tenant))], COLUMNS, as_json=as_json)


@app.command()
def resume(tenant: Named, as_json: AsJson = False) -> None:
    """Take the keys of a suspended tenant again."""
    from slackwater.tenancy import tenants

    row = administer(lambda connection: tenants.suspend(connection, tenant, suspended=False))
    show([row], COLUMNS, as_json=as_json)
