"""Creates that are sent again: which earlier one a create repeats, if any. The rule is the same for every kind of object."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import Conflict
from slackwater.storage.database import Database

RESEND_MINUTES: Final = 10
# Guarantees: creates that may be the same one come one after the other, each until the end of its transaction.
ALONE = text("SELECT pg_advisory_xact_lock(hashtextextended(:what, 0))")
BY_KEY = text("""
SELECT id, object_id, api_key_id, hash FROM idempotency WHERE tenant_id = :tenant_id AND route = :route AND key = :key
""")
# The one whose reply was not written. Without a key the newest is meant: the others were given up by their clients.
UNREPLIED = text(f"""
SELECT id, object_id, api_key_id, hash FROM idempotency
 WHERE tenant_id = :tenant_id AND route = :route AND api_key_id = :api_key_id AND hash = :hash
   AND key IS NULL AND replied_at IS NULL AND created_at > now() - interval '{RESEND_MINUTES} minutes'
 ORDER BY id DESC LIMIT 1
""")
REMEMBER = text("""
INSERT INTO idempotency (tenant_id, route, api_key_id, key, hash, object_id)
VALUES (:tenant_id, :route, :api_key_id, :key, :hash, :object_id) RETURNING id
""")
REPLIED = text(
    "UPDATE idempotency SET replied_at = now() WHERE tenant_id = :tenant_id AND id = :id AND replied_at IS NULL"
)


@dataclass(frozen=True, slots=True)
class Create:
    """What makes a create the same as another: its tenant, route and key, or without a key its caller and body.

    `hash` stands for the body; `is_resend` says that the client's library has sent it before.
    """

    tenant_id: int
    api_key_id: int
    route: str
    hash: bytes
    key: str | None = None
    is_resend: bool = False

    @property
    def lock(self) -> str:
        own = f"key:{self.key}" if self.key is not None else f"hash:{self.api_key_id}:{self.hash.hex()}"
        return f"{self.tenant_id}:{self.route}:{own}"


@dataclass(frozen=True, slots=True)
class Known:
    """A create that is written down: its row, the public id of what it made, and the API key that made it."""

    id: int
    object_id: str
    api_key_id: int


def hash_of(value: Any) -> bytes:
    """sha256 of the canonical JSON of a parsed body: the order of keys and blanks do not count."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).digest()


async def earlier(connection: AsyncConnection, create: Create) -> Known | None:
    """The create that this one repeats. Call it first in the transaction that makes the object: it waits for others of its kind.

    Raises:
        Conflict: the key was used for another body.
    """
    await connection.execute(ALONE, {"what": create.lock})
    if create.key is None and not create.is_resend:
        return None
    found = (await connection.execute(UNREPLIED if create.key is None else BY_KEY, _values(create))).first()
    if found is None:
        return None
    if found.hash != create.hash:
        raise Conflict("This Idempotency-Key was used for a different request.", code="idempotency_key_reused")
    return Known(found.id, found.object_id, found.api_key_id)


async def remember(connection: AsyncConnection, create: Create, object_id: str) -> Known:
    """Write a create down, in the transaction that makes its object."""
    row = await connection.execute(REMEMBER, _values(create) | {"object_id": object_id})
    return Known(row.scalar_one(), object_id, create.api_key_id)


async def replied(database: Database, tenant_id: int, known: Known) -> None:
    """The reply was written: a create with the same body is from now on a new one, unless it has the key."""
    async with database.tenant(tenant_id) as connection:
        await connection.execute(REPLIED, {"tenant_id": tenant_id, "id": known.id})


def _values(create: Create) -> dict[str, object]:
    return {
        "tenant_id": create.tenant_id,
        "api_key_id": create.api_key_id,
        "route": create.route,
        "key": create.key,
        "hash": create.hash,
    }
