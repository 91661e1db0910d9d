"""A dry run over a stored file: everything that planning would find, and nothing queued. Memory grows with the lines, not their bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.reader.limits import Limits
from slackwater.reader.validate import FileValidator
from slackwater.storage import blobs
from slackwater.storage.database import Database
from slackwater.wire.ranges import Span

MODELS: Final = text("""
SELECT m.name, m.id FROM model m
 WHERE m.is_open OR EXISTS (SELECT 1 FROM model_access a WHERE a.tenant_id = :tenant_id AND a.model_id = m.id)
""")


@dataclass
class Sums:
    """What the valid requests for one model come to; `tokens` is a guess at those of their prompts."""

    requests: int = 0
    tokens: int = 0


@dataclass
class DryRun:
    """A validator, and the sums of the requests it lets through."""

    validator: FileValidator
    models: dict[str, Sums] = field(default_factory=dict)

    @property
    def valid(self) -> int:
        return sum(sums.requests for sums in self.models.values())

    def feed(self, data: bytes) -> None:
        for request in self.validator.feed(data):
            self._count(request.model, request.est_tokens)

    def finish(self) -> None:
        for request in self.validator.finish():
            self._count(request.model, request.est_tokens)

    def _count(self, model: str, tokens: int) -> None:
        sums = self.models.setdefault(model, Sums())
        sums.requests += 1
        sums.tokens += tokens


async def models_of(connection: AsyncConnection, tenant_id: int) -> dict[str, int]:
    """The models that a tenant may use, by name."""
    rows = (await connection.execute(MODELS, {"tenant_id": tenant_id})).all()
    return {row.name: row.id for row in rows}


async def dry_run(
    database: Database, tenant_id: int, file_id: int, size: int, endpoint: str, limits: Limits, models: dict[str, int]
) -> DryRun:
    """Read and check `size` bytes of a stored file, a chunk at a time, off the event loop.

    Raises:
        Gone: the bytes were purged meanwhile.
    """
    run = DryRun(FileValidator(endpoint, models, limits))
    async for data in blobs.read(database, tenant_id, file_id, Span(0, size)):
        await asyncio.to_thread(run.feed, data)
        if run.validator.fatal:
            break
    await asyncio.to_thread(run.finish)
    return run
