"""Tenants and their projects."""

from __future__ import annotations

from typing import Any

from sqlalchemy import RowMapping, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import ids
from slackwater.errors import Conflict, NotFound
from slackwater.storage.tables import project, tenant
from slackwater.tenancy import audit
from slackwater.tenancy.names import checked

DEFAULT_PROJECT = "default"


async def create(connection: AsyncConnection, name: str, *, weight: int = 1, actor: str = "cli") -> dict[str, Any]:
    """A tenant, with a project named `default`. `weight` is its share among tenants.

    Raises:
        InvalidRequest: the name may not be used.
        Conflict: a tenant of this name exists.
    """
    row = {"public_id": ids.new("ten_"), "name": checked(name), "weight": weight}
    try:
        found = (await connection.execute(insert(tenant).values(row).returning(tenant))).mappings().one()
    except IntegrityError:
        raise Conflict("A tenant of this name exists.", code="name_taken", param="name") from None
    await create_project(connection, found, DEFAULT_PROJECT, actor=actor)
    await audit.record(connection, actor, "tenant.created", found["public_id"], tenant_id=found["id"])
    return dict(found)


async def find(connection: AsyncConnection, reference: str) -> RowMapping:
    """The tenant with this public id or name.

    Raises:
        NotFound: there is none.
    """
    query = select(tenant).where((tenant.c.public_id == reference) | (tenant.c.name == reference))
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise NotFound("No such tenant.", param="tenant")
    return row


async def listed(connection: AsyncConnection) -> list[dict[str, Any]]:
    rows = await connection.execute(select(tenant).order_by(tenant.c.id))
    return [dict(row) for row in rows.mappings()]


async def suspend(
    connection: AsyncConnection, reference: str, *, suspended: bool = True, actor: str = "cli"
) -> dict[str, Any]:
    """Refuse all keys of a tenant within a second, or take them again.

    Raises:
        NotFound: there is no such tenant.
    """
    row = await find(connection, reference)
    change = update(tenant).where(tenant.c.id == row["id"]).values(suspended_at=func.now() if suspended else None)
    changed = (await connection.execute(change.returning(tenant))).mappings().one()
    action = "tenant.suspended" if suspended else "tenant.resumed"
    await audit.record(connection, actor, action, row["public_id"], tenant_id=row["id"])
    return dict(changed)


async def create_project(
    connection: AsyncConnection, owner: RowMapping, name: str, *, actor: str = "cli"
) -> dict[str, Any]:
    """A project of the tenant `owner` (a row of `find`).

    Raises:
        InvalidRequest: the name may not be used.
        Conflict: the tenant has a project of this name.
    """
    row = {"tenant_id": owner["id"], "public_id": ids.new("proj_"), "name": checked(name)}
    try:
        found = (await connection.execute(insert(project).values(row).returning(project))).mappings().one()
    except IntegrityError:
        raise Conflict("The tenant has a project of this name.", code="name_taken", param="name") from None
    await audit.record(connection, actor, "project.created", found["public_id"], tenant_id=owner["id"])
    return dict(found)


async def projects(connection: AsyncConnection, tenant_id: int) -> list[dict[str, Any]]:
    rows = await connection.execute(select(project).where(project.c.tenant_id == tenant_id).order_by(project.c.id))
    return [dict(row) for row in rows.mappings()]


async def find_project(connection: AsyncConnection, tenant_id: int, reference: str) -> RowMapping:
    """The tenant's project with this public id or name.

    Raises:
        NotFound: there is none.
    """
    named = (project.c.public_id == reference) | (project.c.name == reference)
    query = select(project).where(project.c.tenant_id == tenant_id, named)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise NotFound("No such project.", param="project")
    return row
