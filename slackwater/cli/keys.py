"""`slackwater keys`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.administer import administer
from slackwater.cli.output import AsJson, show

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

app = typer.Typer(name="keys", help="API keys: shown once, stored hashed.", no_args_is_help=True)
COLUMNS = ("public_id", "name", "scopes", "last4", "created_at", "expires_at", "revoked_at", "last_used_at")
Tenant = Annotated[str, typer.Option(help="Name or id of the tenant.")]


@app.command()
def create(
    tenant: Tenant = "default",
    project: Annotated[str, typer.Option(help="Name or id of the project.")] = "default",
    name: Annotated[str, typer.Option(help="What the key is for.")] = "key",
    scope: Annotated[list[str] | None, typer.Option(help="May be given again; without it, all but `admin`.")] = None,
    expires_in_days: Annotated[float | None, typer.Option(min=0, help="Refused after so many days.")] = None,
) -> None:
    """Make a key and print it, alone on standard output. It cannot be shown again."""
    from slackwater.tenancy import keys

    expires_at = datetime.now(UTC) + timedelta(days=expires_in_days) if expires_in_days is not None else None
    made = administer(
        lambda connection: keys.create(
            connection,
            tenant,
            project_reference=project,
            name=name,
            scopes=scope or keys.CLIENT_SCOPES,
            expires_at=expires_at,
        )
    )
    typer.echo(made.text)


@app.command("list")
def list_(tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List a tenant's keys, revoked ones too."""
    from slackwater.tenancy import keys, tenants

    async def act(connection: AsyncConnection) -> list[dict[str, Any]]:
        return await keys.listed(connection, (await tenants.find(connection, tenant))["id"])

    show(administer(act), COLUMNS, as_json=as_json)


@app.command()
def revoke(key: Annotated[str, typer.Argument(help="Its public id.")], as_json: AsJson = False) -> None:
    """Refuse a key from now on."""
    from slackwater.tenancy import keys

    show([administer(lambda connection: keys.revoke(connection, key))], COLUMNS, as_json=as_json)
