"""`slackwater projects`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.administer import administer
from slackwater.cli.output import AsJson, show

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

app = typer.Typer(name="projects", help="The projects of a tenant.", no_args_is_help=True)
COLUMNS = ("public_id", "name", "created_at")
Tenant = Annotated[str, typer.Option(help="Name or id of the tenant.")]


@app.command()
def create(name: str, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Make a project."""
    from slackwater.tenancy import tenants

    async def act(connection: AsyncConnection) -> dict[str, Any]:
        return await tenants.create_project(connection, await tenants.find(connection, tenant), name)

    show([administer(act)], COLUMNS, as_json=as_json)


@app.command("list")
def list_(tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List a tenant's projects."""
    from slackwater.tenancy import tenants

    async def act(connection: AsyncConnection) -> list[dict[str, Any]]:
        return await tenants.projects(connection, (await tenants.find(connection, tenant))["id"])

    show(administer(act), COLUMNS, as_json=as_json)
