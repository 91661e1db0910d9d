"""Rows of files as a tenant sees them: complete, not deleted, not expired; of a batch's two files only those with a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

Order = Literal["asc", "desc"]

# The input of a response is nobody's file. The size of a batch's file is known when its index is frozen; until then it counts as 0.
_VISIBLE = """
SELECT f.id, f.public_id, f.filename, f.purpose, f.created_at, f.expires_at, f.batch_id, f.side, f.sha256,
       coalesce(i.bytes, f.bytes) AS bytes
  FROM file f
  LEFT JOIN output_index i ON i.tenant_id = f.tenant_id AND i.batch_id = f.batch_id AND i.side = f.side
 WHERE f.tenant_id = :tenant_id AND f.is_complete AND f.deleted_at IS NULL AND (f.expires_at IS NULL OR f.expires_at > now())
   AND f.purpose <> 'response'
   AND (f.batch_id IS NULL OR i.lines > 0 OR (i.lines IS NULL AND EXISTS (
        SELECT FROM progress p WHERE p.tenant_id = f.tenant_id AND p.batch_id = f.batch_id
           AND CASE f.side WHEN 0 THEN p.succeeded ELSE p.failed + p.expired + p.cancelled END > 0)))
"""
FIND = text(_VISIBLE + " AND f.public_id = :public_id")
_LIST = (
    _VISIBLE
    + """
   AND (CAST(:purpose AS text) IS NULL OR f.purpose = :purpose)
   AND (CAST(:cursor AS bigint) IS NULL OR f.id {past} :cursor)
 ORDER BY f.id {order} LIMIT :limit
"""
)
LIST = {
    "asc": text(_LIST.format(past=">", order="ASC")),
    "desc": text(_LIST.format(past="<", order="DESC")),
}
# A deleted file is still a place in the list: clients delete what they page through.
CURSOR = text("SELECT id FROM file WHERE tenant_id = :tenant_id AND public_id = :public_id AND is_complete")
# Guarantees: of several deletes at once one finds the file; from its commit on nobody does.
DELETE = text("""
UPDATE file SET deleted_at = now() WHERE tenant_id = :tenant_id AND id = :id AND deleted_at IS NULL RETURNING public_id
""")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a page of a list is asked for."""

    limit: int
    cursor: int | None = None
    order: Order = "desc"
    purpose: str | None = None


async def find(connection: AsyncConnection, tenant_id: int, public_id: str) -> RowMapping | None:
    """The file, if the tenant has it and it is there to be seen."""
    values = {"tenant_id": tenant_id, "public_id": public_id}
    return (await connection.execute(FIND, values)).mappings().first()


async def cursor_of(connection: AsyncConnection, tenant_id: int, public_id: str) -> int | None:
    """The place in the list that an id stands for; None when the tenant never had it."""
    values = {"tenant_id": tenant_id, "public_id": public_id}
    return (await connection.execute(CURSOR, values)).scalar_one_or_none()


async def listed(connection: AsyncConnection, tenant_id: int, asked: Listing) -> tuple[list[dict[str, Any]], bool]:
    """One page, and whether there is another."""
    values = {
        "tenant_id": tenant_id,
        "purpose": asked.purpose,
        "cursor": asked.cursor,
        "limit": asked.limit + 1,
    }
    rows = [dict(row) for row in (await connection.execute(LIST[asked.order], values)).mappings()]
    return rows[: asked.limit], len(rows) > asked.limit


async def delete(connection: AsyncConnection, tenant_id: int, public_id: str) -> bool:
    """Hide a file for good; its bytes go when no unfinished batch needs them. False when there is nothing to delete."""
    row = await find(connection, tenant_id, public_id)
    if row is None:
        return False
    gone = await connection.execute(DELETE, {"tenant_id": tenant_id, "id": row["id"]})
    return gone.first() is not None
