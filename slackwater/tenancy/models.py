"""Models: which exist, who may use them, and what they cost."""

from __future__ import annotations

from typing import Any

from sqlalchemy import RowMapping, delete, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import NotFound
from slackwater.pricing import Price
from slackwater.storage.tables import model, model_access, price
from slackwater.tenancy import audit, tenants
from slackwater.tenancy.names import checked_model


async def ensure(
    connection: AsyncConnection, name: str, *, is_open: bool | None = None, actor: str = "cli"
) -> dict[str, Any]:
    """The model of this name, made when it is new; `is_open` changes it when given. New ones are open to every tenant.

    Raises:
        InvalidRequest: the name may not be used.
    """
    values: dict[str, Any] = {"name": checked_model(name, "name")}
    if is_open is not None:
        values["is_open"] = is_open
    statement = upsert(model).values(values).on_conflict_do_nothing().returning(model)
    row = (await connection.execute(statement)).mappings().first()
    if row is not None:
        await audit.record(connection, actor, "model.created", name)
        return dict(row)
    if is_open is not None:
        await connection.execute(update(model).where(model.c.name == name).values(is_open=is_open))
        await audit.record(connection, actor, "model.changed", name, details={"is_open": is_open})
    return dict(await find(connection, name))


async def find(connection: AsyncConnection, name: str) -> RowMapping:
    """The model of this name, whoever may use it.

    Raises:
        NotFound: there is none.
    """
    row = (await connection.execute(select(model).where(model.c.name == name))).mappings().first()
    if row is None:
        raise NotFound("No such model.", code="model_not_found", param="model")
    return row


async def listed(connection: AsyncConnection) -> list[dict[str, Any]]:
    rows = await connection.execute(select(model).order_by(model.c.name))
    return [dict(row) for row in rows.mappings()]


async def usable(connection: AsyncConnection, tenant_id: int, name: str | None = None) -> list[dict[str, Any]]:
    """The models a tenant may use, by name; with `name`, that one or none. Takes a `tenant()` transaction too."""
    granted = select(model_access.c.model_id).where(model_access.c.tenant_id == tenant_id)
    query = select(model).where(model.c.is_open | model.c.id.in_(granted)).order_by(model.c.name)
    if name is not None:
        query = query.where(model.c.name == name)
    return [dict(row) for row in (await connection.execute(query)).mappings()]


async def allow(
    connection: AsyncConnection, name: str, tenant_reference: str, *, allowed: bool = True, actor: str = "cli"
) -> None:
    """Let a tenant use a model that is not open to all, or no longer. Doing it again changes nothing.

    Raises:
        NotFound: no such model or tenant.
    """
    what, who = await find(connection, name), await tenants.find(connection, tenant_reference)
    values = {"tenant_id": who["id"], "model_id": what["id"]}
    if allowed:
        await connection.execute(upsert(model_access).values(values).on_conflict_do_nothing())
    else:
        columns = model_access.c
        same = (columns.tenant_id == who["id"]) & (columns.model_id == what["id"])
        await connection.execute(delete(model_access).where(same))
    action = "model.allowed" if allowed else "model.disallowed"
    await audit.record(connection, actor, action, name, tenant_id=who["id"])


async def set_price(connection: AsyncConnection, name: str, new: Price, *, actor: str = "cli") -> dict[str, Any]:
    """What a model's tokens cost for batches created from now on; older prices stay.

    Raises:
        NotFound: no such model.
    """
    what = await find(connection, name)
    values = {
        "model_id": what["id"],
        "input_picodollars": new.input,
        "cached_picodollars": new.cached,
        "output_picodollars": new.output,
    }
    row = (await connection.execute(insert(price).values(values).returning(price))).mappings().one()
    await audit.record(connection, actor, "price.set", name, details=values)
    return dict(row)


async def prices(connection: AsyncConnection, name: str | None = None) -> list[dict[str, Any]]:
    """Prices, newest first, with the model's name."""
    query = select(price, model.c.name.label("model")).join(model).order_by(price.c.valid_from.desc(), price.c.id)
    if name is not None:
        query = query.where(model.c.name == name)
    return [dict(row) for row in (await connection.execute(query)).mappings()]
