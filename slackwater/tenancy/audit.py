"""Who did what. Insert-only; details never hold a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.storage.tables import audit


async def record(
    connection: AsyncConnection,
    actor: str,
    action: str,
    object_: str,
    *,
    tenant_id: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Note `action` (noun.past_verb) on the public id `object_`, in the transaction of the act."""
    await connection.execute(
        insert(audit).values(
            tenant_id=tenant_id, actor=actor, action=action, object=object_, details=dict(details or {})
        )
    )
