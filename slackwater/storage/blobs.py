"""The bytes of uploaded files, in chunks of at most 1 MiB that end at a line end where one is near enough.

Every chunk is a transaction of its own, so that a slow client holds no transaction open and a process holds one chunk.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import ids
from slackwater.errors import Gone, TooLarge
from slackwater.storage.database import Database
from slackwater.wire.ranges import Span

CHUNK_BYTES: Final = 1 << 20


def cut(buffer: bytes | bytearray, most: int = CHUNK_BYTES) -> int:
    """How many bytes of `buffer` the next chunk takes: up to the last line end within `most`, else `most`."""
    return buffer.rfind(b"\n", 0, most) + 1 or min(most, len(buffer))


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge(f"File is too large: at most {most_bytes} bytes are accepted.")


BEGIN = text("""
INSERT INTO file (tenant_id, project_id, public_id, filename, purpose) VALUES (:tenant_id, :project_id, :public_id, '', '')
RETURNING id
""")
# Guarantees: nothing is written to a file that the purge has closed. `touched_at` tells it that the upload is alive.
APPEND = text("""
WITH c AS (INSERT INTO file_chunk (tenant_id, file_id, n, start, data) VALUES (:tenant_id, :file_id, :n, :start, :data))
UPDATE file SET touched_at = now() WHERE tenant_id = :tenant_id AND id = :file_id AND NOT is_complete AND deleted_at IS NULL RETURNING id
""")
COMPLETE = text("""
UPDATE file SET is_complete = true, touched_at = now(), bytes = :bytes, sha256 = :sha256, filename = :filename, purpose = :purpose,
       expires_at = created_at + CAST(:life AS interval)
 WHERE tenant_id = :tenant_id AND id = :file_id AND NOT is_complete AND deleted_at IS NULL
RETURNING id, public_id, filename, purpose, bytes, created_at, expires_at
""")
DISCARD_CHUNKS = text("DELETE FROM file_chunk WHERE tenant_id = :tenant_id AND file_id = :file_id")
DISCARD = text("DELETE FROM file WHERE tenant_id = :tenant_id AND id = :file_id AND NOT is_complete")


class Purged(Exception):
    """The upload was purged while it was being written: its client had been silent for too long."""


@dataclass
class Upload:
    """One file while it is written: `open`, `write` …, then `complete` (or `flush` and `finish`) or `discard`."""

    database: Database
    tenant_id: int
    project_id: int
    most_bytes: int
    file_id: int | None = None
    size: int = 0
    _n: int = 0
    _stored: int = 0
    _buffer: bytearray = field(default_factory=bytearray)
    _sha256: Any = field(default_factory=hashlib.sha256)

    async def open(self) -> None:
        """Make the row, which nobody sees until it is complete."""
        values = {"tenant_id": self.tenant_id, "project_id": self.project_id, "public_id": ids.new("file-")}
        async with self.database.tenant(self.tenant_id) as connection:
            self.file_id = (await connection.execute(BEGIN, values)).scalar_one()

    async def write(self, data: bytes) -> None:
        """Take bytes, and store every chunk that is full.

        Raises:
            TooLarge: the file is over its limit.
            Purged: it is gone.
        """
        self.size += len(data)
        if self.size > self.most_bytes:
            raise too_large(self.most_bytes)
        self._buffer += data
        while len(self._buffer) >= CHUNK_BYTES:
            await self._store(cut(self._buffer))

    async def flush(self) -> bytes:
        """Store the rest; returns the sha256 of the whole.

        Raises:
            Purged: it is gone.
        """
        while self._buffer:
            await self._store(cut(self._buffer))
        return bytes(self._sha256.digest())

    async def finish(
        self, connection: AsyncConnection, *, filename: str, purpose: str, life: timedelta | None
    ) -> dict[str, Any]:
        """Make a flushed file visible with the caller's transaction; returns the columns of its object, its `id` among them.

        Raises:
            Purged: it is gone.
        """
        values = {
            "tenant_id": self.tenant_id,
            "file_id": self.file_id,
            "bytes": self.size,
            "sha256": self._sha256.digest(),
            "filename": filename,
            "purpose": purpose,
            "life": life,
        }
        row = (await connection.execute(COMPLETE, values)).mappings().first()
        if row is None:
            raise Purged
        return dict(row)

    async def complete(self, *, filename: str, purpose: str, life: timedelta | None) -> dict[str, Any]:
        """Store the rest and make the file visible, in a transaction of its own.

        Raises:
            Purged: it is gone.
        """
        await self.flush()
        async with self.database.tenant(self.tenant_id) as connection:
            return await self.finish(connection, filename=filename, purpose=purpose, life=life)

    async def discard(self) -> None:
        """Delete what was stored of a file that is not complete."""
        if self.file_id is None:
            return
        values = {"tenant_id": self.tenant_id, "file_id": self.file_id}
        async with self.database.tenant(self.tenant_id) as connection:
            if (await connection.execute(DISCARD, values)).rowcount:
                await connection.execute(DISCARD_CHUNKS, values)

    async def _store(self, length: int) -> None:
        data = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        self._sha256.update(data)
        values = {"tenant_id": self.tenant_id, "file_id": self.file_id, "n": self._n, "start": self._stored}
        async with self.database.tenant(self.tenant_id) as connection:
            touched = await connection.execute(APPEND, values | {"data": data})
            if touched.first() is None:
                raise Purged
        self._n += 1
        self._stored += length


async def store(
    connection: AsyncConnection, tenant_id: int, project_id: int, data: bytes, *, filename: str, purpose: str
) -> str:
    """A file of bytes that are all here, made in the caller's transaction; returns its public id. It has no end of its own."""
    where = {"tenant_id": tenant_id, "project_id": project_id, "public_id": ids.new("file-")}
    file_id = (await connection.execute(BEGIN, where)).scalar_one()
    here: dict[str, Any] = {"tenant_id": tenant_id, "file_id": file_id}
    start = n = 0
    while start < len(data):
        end = start + cut(data[start : start + CHUNK_BYTES])
        await connection.execute(APPEND, here | {"n": n, "start": start, "data": data[start:end]})
        start, n = end, n + 1
    about = {"bytes": len(data), "sha256": hashlib.sha256(data).digest(), "filename": filename, "purpose": purpose}
    return str((await connection.execute(COMPLETE, here | about | {"life": None})).mappings().one()["public_id"])


FIRST = text("""
SELECT n FROM file_chunk WHERE tenant_id = :tenant_id AND file_id = :file_id AND start <= :start ORDER BY n DESC LIMIT 1
""")
CHUNK = text("SELECT start, data FROM file_chunk WHERE tenant_id = :tenant_id AND file_id = :file_id AND n = :n")


async def read(database: Database, tenant_id: int, file_id: int, span: Span) -> AsyncIterator[bytes]:
    """The bytes of `span`, a chunk at a time, each in its own transaction.

    Raises:
        Gone: the chunks were purged meanwhile.
    """
    where, n = {"tenant_id": tenant_id, "file_id": file_id}, None
    at = span.start
    while at < span.stop:
        async with database.tenant(tenant_id) as connection:
            if n is None:
                n = await _first(connection, where, at)
            row = (await connection.execute(CHUNK, where | {"n": n})).first()
        if row is None:
            raise Gone("The file is no longer stored.")
        data = row.data[at - row.start : span.stop - row.start]
        yield data
        at, n = at + len(data), n + 1


async def _first(connection: AsyncConnection, where: dict[str, int], at: int) -> int:
    return int((await connection.execute(FIRST, where | {"start": at})).scalar_one_or_none() or 0)
