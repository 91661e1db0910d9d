"""The secrets that sign for an endpoint: several may be live while a subscriber changes over. All run in the tenant's own transaction."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import Conflict, InvalidRequest
from slackwater.sealing import Sealer
from slackwater.storage.tables import endpoint, secret
from slackwater.webhooks import signing

MAX_SECRETS: Final = 10
MAX_GRACE_SECONDS: Final = 7 * 86_400


def check_grace(grace_seconds: int) -> None:
    """Raise InvalidRequest for a grace that is not 0 to 604,800 seconds."""
    if not 0 <= grace_seconds <= MAX_GRACE_SECONDS:
        raise InvalidRequest("The grace must be 0 to 604800 seconds.", param="grace_seconds")


async def add(connection: AsyncConnection, sealer: Sealer, tenant_id: int, endpoint_id: int, public_id: str) -> str:
    """Make a secret and return it; only its sealed form is kept."""
    plain = signing.new_secret()
    row = {
        "tenant_id": tenant_id,
        "endpoint_id": endpoint_id,
        "sealed": sealer.seal(plain.encode(), signing.secret_context(tenant_id, public_id)),
        "hint": signing.hint(plain),
    }
    await connection.execute(insert(secret).values(row))
    return plain


async def retire(connection: AsyncConnection, tenant_id: int, endpoint_id: int, grace_seconds: int) -> None:
    """End the secrets there are after `grace_seconds`, never later than they would, and drop the ended ones. The endpoint's row is locked.

    Raises:
        Conflict: `MAX_SECRETS` are live already.
    """
    ends = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, grace_seconds)
    mine = _of(tenant_id, endpoint_id)
    await connection.execute(
        update(secret).where(mine).values(expires_at=func.least(func.coalesce(secret.c.expires_at, ends), ends))
    )
    await connection.execute(delete(secret).where(mine, secret.c.expires_at <= func.now()))
    count = (await connection.execute(select(func.count()).select_from(secret).where(mine))).scalar_one()
    if count >= MAX_SECRETS:
        raise Conflict(f"At most {MAX_SECRETS} secrets may be live at once.", code="too_many_secrets")


async def live(
    connection: AsyncConnection, sealer: Sealer, tenant_id: int, endpoint_id: int, public_id: str
) -> list[str]:
    """The secrets that sign now, newest first."""
    is_live = or_(secret.c.expires_at.is_(None), secret.c.expires_at > func.now())
    query = select(secret.c.sealed).where(_of(tenant_id, endpoint_id), is_live).order_by(secret.c.id.desc())
    context = signing.secret_context(tenant_id, public_id)
    return [sealer.unseal(value, context).decode() for value in (await connection.execute(query)).scalars()]


async def remove(connection: AsyncConnection, tenant_id: int, endpoint_id: int) -> None:
    await connection.execute(delete(secret).where(_of(tenant_id, endpoint_id)))


def newest_hint() -> ColumnElement[str]:
    """A column of a query over endpoints: the hint of each one's newest secret."""
    newest = select(secret.c.hint).where(
        secret.c.tenant_id == endpoint.c.tenant_id, secret.c.endpoint_id == endpoint.c.id
    )
    return newest.order_by(secret.c.id.desc()).limit(1).scalar_subquery().label("hint")


def _of(tenant_id: int, endpoint_id: int) -> ColumnElement[bool]:
    return and_(secret.c.tenant_id == tenant_id, secret.c.endpoint_id == endpoint_id)
