"""API keys: made once, shown once, found by their public part, revoked for good."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import InvalidRequest, NotFound
from slackwater.storage.tables import api_key, project, tenant
from slackwater.tenancy import audit, tenants
from slackwater.tenancy.key_format import digest_of, mint, public_id_of
from slackwater.tenancy.names import checked

ADMIN: Final = "admin"
SCOPES: Final = (
    "files:read",
    "files:write",
    "batches:read",
    "batches:write",
    "webhooks:manage",
    "models:read",
    "live:write",
    ADMIN,
)
CLIENT_SCOPES: Final = SCOPES[:-1]


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a key stands for."""

    tenant_id: int
    tenant: str
    project_id: int
    key_id: int
    key: str
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """`text` is the only copy of the key there will ever be."""

    text: str
    row: dict[str, Any]


async def create(
    connection: AsyncConnection,
    tenant_reference: str,
    *,
    project_reference: str = tenants.DEFAULT_PROJECT,
    name: str = "key",
    scopes: Sequence[str] = CLIENT_SCOPES,
    not_before: datetime | None = None,
    expires_at: datetime | None = None,
    env: str = "live",
    actor: str = "cli",
) -> CreatedKey:
    """A key of a tenant's project, for `scopes`.

    Raises:
        NotFound: no such tenant or project.
        InvalidRequest: a scope is unknown, or the name may not be used.
    """
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise InvalidRequest(f"Scopes are one or more of: {', '.join(SCOPES)}.", code="invalid_value", param="scopes")
    owner = await tenants.find(connection, tenant_reference)
    place = await tenants.find_project(connection, owner["id"], project_reference)
    minted = mint(env)
    values = {
        "tenant_id": owner["id"],
        "project_id": place["id"],
        "public_id": minted.public_id,
        "digest": minted.digest,
        "last4": minted.last4,
        "name": checked(name),
        "scopes": sorted(set(scopes)),
        "not_before": not_before,
        "expires_at": expires_at,
    }
    row = (await connection.execute(insert(api_key).values(values).returning(api_key))).mappings().one()
    await audit.record(connection, actor, "key.created", minted.public_id, tenant_id=owner["id"])
    return CreatedKey(minted.text, dict(row))


async def listed(connection: AsyncConnection, tenant_id: int) -> list[dict[str, Any]]:
    """Every key of a tenant, revoked ones too."""
    rows = await connection.execute(select(api_key).where(api_key.c.tenant_id == tenant_id).order_by(api_key.c.id))
    return [dict(row) for row in rows.mappings()]


async def revoke(connection: AsyncConnection, public_id: str, *, actor: str = "cli") -> dict[str, Any]:
    """Refuse a key from now on; every process does within a second. Revoking again changes nothing.

    Raises:
        NotFound: there is no such key.
    """
    change = (
        update(api_key)
        .where(api_key.c.public_id == public_id)
        .values(revoked_at=func.coalesce(api_key.c.revoked_at, func.now()))
        .returning(api_key)
    )
    row = (await connection.execute(change)).mappings().first()
    if row is None:
        raise NotFound("No such key.", param="key")
    await audit.record(connection, actor, "key.revoked", public_id, tenant_id=row["tenant_id"])
    return dict(row)


FIND = (
    select(
        api_key.c.tenant_id,
        tenant.c.public_id.label("tenant"),
        api_key.c.project_id,
        api_key.c.id.label("key_id"),
        api_key.c.public_id.label("key"),
        api_key.c.digest,
        api_key.c.scopes,
    )
    .join(tenant, tenant.c.id == api_key.c.tenant_id)
    .join(project, (project.c.tenant_id == api_key.c.tenant_id) & (project.c.id == api_key.c.project_id))
    .where(
        api_key.c.revoked_at.is_(None),
        tenant.c.suspended_at.is_(None),
        (api_key.c.expires_at.is_(None)) | (api_key.c.expires_at > func.now()),
        (api_key.c.not_before.is_(None)) | (api_key.c.not_before <= func.now()),
    )
)
TOUCH = text("""
UPDATE api_key SET last_used_at = now()
 WHERE public_id = :key AND (last_used_at IS NULL OR last_used_at < now() - interval '60 s')
""")


async def recognise(connection: AsyncConnection, text_: str) -> Principal | None:
    """Whom a presented key stands for now; None when it is unknown, expired, not yet valid, revoked or suspended.

    Takes a transaction of `Database.gate()`.
    """
    public_id = public_id_of(text_)
    if public_id is None:
        return None
    row = (await connection.execute(FIND.where(api_key.c.public_id == public_id))).mappings().first()
    if not hmac.compare_digest(row["digest"] if row else bytes(32), digest_of(text_)) or row is None:
        return None
    await connection.execute(TOUCH, {"key": public_id})
    return Principal(
        row["tenant_id"], row["tenant"], row["project_id"], row["key_id"], row["key"], frozenset(row["scopes"])
    )
