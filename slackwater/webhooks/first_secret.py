"""The secret that the create of a batch's `webhook` showed: for a client that lost that reply and sends its create again."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.sealing import Sealer
from slackwater.webhooks import signing

# The first secret came with its endpoint, in one transaction; a rotation leaves it with an end, or deletes it.
FIRST = text("""
SELECT p.public_id, s.sealed
  FROM batch b
  JOIN endpoint p ON p.tenant_id = b.tenant_id AND p.batch_id = b.id AND p.deleted_at IS NULL
  LEFT JOIN secret s ON s.tenant_id = p.tenant_id AND s.endpoint_id = p.id AND s.created_at = p.created_at AND s.expires_at IS NULL
 WHERE b.tenant_id = :tenant_id AND b.public_id = :batch
""")


@dataclass(frozen=True, slots=True)
class FirstSecret:
    """A batch's own endpoint; `signing_secret` is None once it was rotated."""

    public_id: str
    signing_secret: str | None = field(repr=False)


async def of_batch(connection: AsyncConnection, *, sealer: Sealer, tenant_id: int, batch: str) -> FirstSecret | None:
    """The endpoint of the batch with this public id; None when it has none any more."""
    row = (await connection.execute(FIRST, {"tenant_id": tenant_id, "batch": batch})).first()
    if row is None:
        return None
    if row.sealed is None:
        return FirstSecret(row.public_id, None)
    context = signing.secret_context(tenant_id, row.public_id)
    return FirstSecret(row.public_id, sealer.unseal(row.sealed, context).decode())
