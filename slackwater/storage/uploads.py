"""Uploads in parts: rows, and the parts' bytes as files that nobody sees (contract: WIRE 1.3)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import ids
from slackwater.errors import Conflict, InvalidRequest, TooLarge
from slackwater.storage import blobs
from slackwater.storage.database import Database
from slackwater.wire.ranges import Span
from slackwater.wire.uploads import MOST_PARTS, UploadState, state_of

_COLUMNS: Final = """
id, public_id, project_id, filename, purpose, bytes, life_seconds, state, file_id, parts_hash, created_at, expires_at,
expires_at <= now() AS is_over
"""
CREATE = text(f"""
INSERT INTO upload (tenant_id, project_id, public_id, filename, purpose, bytes, life_seconds)
VALUES (:tenant_id, :project_id, :public_id, :filename, :purpose, :bytes, :life_seconds) RETURNING {_COLUMNS}
""")
FIND = text(f"SELECT {_COLUMNS} FROM upload WHERE tenant_id = :tenant_id AND public_id = :public_id")
# Guarantees: a part is added before an upload ends or not at all; whoever ends it waits for this share lock.
ADD_PART = text("""
WITH u AS (SELECT tenant_id, id FROM upload WHERE tenant_id = :tenant_id AND id = :upload_id AND state = 0 AND expires_at > now() FOR SHARE)
INSERT INTO upload_part (tenant_id, upload_id, file_id, public_id, bytes)
SELECT u.tenant_id, u.id, :file_id, :public_id, :bytes FROM u RETURNING public_id, created_at
""")
STORED = text("""
SELECT count(*) AS parts, coalesce(sum(bytes), 0)::bigint AS bytes FROM upload_part WHERE tenant_id = :tenant_id AND upload_id = :upload_id
""")
PART = text("""
SELECT public_id, created_at FROM upload_part WHERE tenant_id = :tenant_id AND upload_id = :upload_id AND public_id = :public_id
""")
PARTS = text("""
SELECT public_id, file_id, bytes FROM upload_part WHERE tenant_id = :tenant_id AND upload_id = :upload_id ORDER BY file_id
""")
# Guarantees: parts that are being put together are not purged meanwhile; of several at once, each locks them in one order.
TOUCH = text("""
WITH x AS MATERIALIZED (
    SELECT f.id FROM upload_part p JOIN file f ON f.tenant_id = p.tenant_id AND f.id = p.file_id
     WHERE p.tenant_id = :tenant_id AND p.upload_id = :upload_id ORDER BY f.id FOR UPDATE OF f)
UPDATE file f SET touched_at = now() FROM x WHERE f.tenant_id = :tenant_id AND f.id = x.id
""")
# Guarantees: of completes and cancels at once, one ends the upload; the others see how.
END = text(f"""
UPDATE upload SET state = :state, file_id = :file_id, parts_hash = :parts_hash
 WHERE tenant_id = :tenant_id AND id = :upload_id AND state = 0 RETURNING {_COLUMNS}
""")
DROP_PART = text("""
WITH p AS (DELETE FROM upload_part WHERE tenant_id = :tenant_id AND upload_id = :upload_id AND file_id = :file_id),
     c AS (DELETE FROM file_chunk WHERE tenant_id = :tenant_id AND file_id = :file_id)
DELETE FROM file WHERE tenant_id = :tenant_id AND id = :file_id AND NOT is_complete
""")
FILE = text("""
SELECT public_id, filename, purpose, bytes, created_at, expires_at FROM file WHERE tenant_id = :tenant_id AND id = :file_id
   AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > now())
""")


Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One stored part."""

    public_id: str
    file_id: int
    bytes: int


async def create(connection: AsyncConnection, tenant_id: int, project_id: int, **wanted: Any) -> Row:
    """Announce an upload of `filename`, `purpose`, `bytes` and `life_seconds`. It expires in an hour."""
    values = {"tenant_id": tenant_id, "project_id": project_id, "public_id": ids.new("upload_")}
    return dict((await connection.execute(CREATE, values | wanted)).mappings().one())


async def find(connection: AsyncConnection, tenant_id: int, public_id: str) -> Row | None:
    """The upload, if the tenant has it."""
    values = {"tenant_id": tenant_id, "public_id": public_id}
    row = (await connection.execute(FIND, values)).mappings().first()
    return None if row is None else dict(row)


def refuse_ended(row: Row, act: str) -> None:
    """Only a pending upload goes on; `act` says what was asked of it.

    Raises:
        Conflict: it was completed or cancelled, or it has expired.
    """
    state = state_of(row)
    if state is not UploadState.PENDING:
        raise Conflict(f"Cannot {act} an upload with status '{state}'.", code=f"upload_{state}")


def gone() -> Conflict:
    """An upload that was there a moment ago: it ended, and its row was purged."""
    return Conflict("The upload has ended.", code="upload_ended")


async def refuse_full(connection: AsyncConnection, tenant_id: int, row: Row) -> None:
    """A part may be sent anew when its reply was lost; more than twice the announced size is no longer that.

    Raises:
        InvalidRequest: there are too many parts.
        TooLarge: they are too large together.
    """
    stored = (await connection.execute(STORED, {"tenant_id": tenant_id, "upload_id": row["id"]})).one()
    if stored.parts >= MOST_PARTS:
        raise InvalidRequest(f"An upload has at most {MOST_PARTS:,} parts.", code="too_many_parts")
    if stored.bytes > 2 * row["bytes"]:
        raise TooLarge("The parts hold more than twice the bytes that were announced.", code="too_many_parts")


async def add_part(connection: AsyncConnection, tenant_id: int, upload_id: int, file_id: int, size: int) -> Row | None:
    """Make a stored file a part of an upload; None when that has ended meanwhile."""
    values = {"tenant_id": tenant_id, "upload_id": upload_id, "file_id": file_id, "bytes": size}
    row = (await connection.execute(ADD_PART, values | {"public_id": ids.new("part_")})).mappings().first()
    return None if row is None else dict(row)


async def part_of(connection: AsyncConnection, tenant_id: int, upload_id: int, public_id: str) -> Row | None:
    """One stored part, while its upload is pending."""
    values = {"tenant_id": tenant_id, "upload_id": upload_id, "public_id": public_id}
    row = (await connection.execute(PART, values)).mappings().first()
    return None if row is None else dict(row)


async def parts(connection: AsyncConnection, tenant_id: int, upload_id: int) -> list[Part]:
    """The stored parts, in the order of their beginning. They are safe from the purge for an hour."""
    values = {"tenant_id": tenant_id, "upload_id": upload_id}
    await connection.execute(TOUCH, values)
    return [Part(*row) for row in (await connection.execute(PARTS, values)).all()]


def in_order(stored: Sequence[Part], part_ids: Sequence[str], size: int) -> list[Part]:
    """The parts that `part_ids` name, in that order.

    Raises:
        InvalidRequest: one is unknown or named twice, or they are not `size` bytes together.
    """
    known = {part.public_id: part for part in stored}
    if len(set(part_ids)) != len(part_ids) or not set(part_ids) <= known.keys():
        message = "Every id in 'part_ids' must be a part of this upload, and stand there once."
        raise InvalidRequest(message, code="invalid_value", param="part_ids")
    chosen = [known[name] for name in part_ids]
    total = sum(part.bytes for part in chosen)
    if total != size:
        message = f"The parts hold {total} bytes, but {size} were announced."
        raise InvalidRequest(message, code="bytes_mismatch", param="part_ids")
    return chosen


def hash_of(part_ids: Sequence[str]) -> bytes:
    """What tells a repeated complete from another one."""
    return hashlib.sha256("\n".join(part_ids).encode()).digest()


async def content(database: Database, tenant_id: int, chosen: Sequence[Part]) -> AsyncIterator[bytes]:
    """The bytes of the parts one after the other, at most a chunk at a time."""
    for part in chosen:
        async for piece in blobs.read(database, tenant_id, part.file_id, Span(0, part.bytes)):
            yield piece


async def end(
    connection: AsyncConnection,
    tenant_id: int,
    upload_id: int,
    state: UploadState,
    *,
    file_id: int | None = None,
    parts_hash: bytes | None = None,
) -> Row | None:
    """End an upload as completed or cancelled; None when it has ended already."""
    values = {"tenant_id": tenant_id, "upload_id": upload_id, "file_id": file_id, "parts_hash": parts_hash}
    values["state"] = {UploadState.COMPLETED: 1, UploadState.CANCELLED: 2}[state]
    row = (await connection.execute(END, values)).mappings().first()
    return None if row is None else dict(row)


async def drop_parts(database: Database, tenant_id: int, upload_id: int) -> None:
    """Delete the parts of an upload that has ended, each in its own transaction. What a crash leaves, the purge removes."""
    where = {"tenant_id": tenant_id, "upload_id": upload_id}
    async with database.tenant(tenant_id) as connection:
        left = (await connection.execute(PARTS, where)).all()
    for part in left:
        async with database.tenant(tenant_id) as connection:
            await connection.execute(DROP_PART, where | {"file_id": part.file_id})


async def file_of(connection: AsyncConnection, tenant_id: int, file_id: int) -> Row | None:
    """The file a completed upload became, while it can be seen."""
    row = (await connection.execute(FILE, {"tenant_id": tenant_id, "file_id": file_id})).mappings().first()
    return None if row is None else dict(row)
