"""The requests of a batch that did not succeed, as the lines of a new file: cut from the stored input, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import Conflict, Gone
from slackwater.lifecycle import BatchState
from slackwater.reader.lines import Line, LineSplitter, LongLine
from slackwater.storage import blobs, outputs
from slackwater.storage.database import Database
from slackwater.wire.ranges import Span

# An input that was deleted or has expired may still have its bytes, for others that run; it is no longer there to be used.
INPUT: Final = text("""
SELECT id, bytes FROM file
 WHERE tenant_id = :tenant_id AND id = :file_id AND is_complete AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > now())
""")
LINES: Final = text("""
SELECT line FROM result WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND outcome > 0 ORDER BY line
""")


def input_gone() -> Conflict:
    return Conflict("The input of this batch is no longer stored.", code="input_gone")


async def wanted(connection: AsyncConnection, batch: RowMapping) -> tuple[RowMapping, frozenset[int]]:
    """The input file of a final batch, and the numbers of its lines that did not succeed.

    Raises:
        Conflict: the batch is not final, its input or its results are gone, or there is nothing to run again.
    """
    state = BatchState(batch["state"])
    if not state.is_final:
        raise Conflict(f"Cannot retry a batch with status '{state.word}'.", code="batch_not_final")
    where = {"tenant_id": batch["tenant_id"], "batch_id": batch["id"], "file_id": batch["file_id"]}
    lines = frozenset((await connection.execute(LINES, where)).scalars())
    if not await outputs.are_kept(connection, batch["tenant_id"], batch["id"]):
        raise Conflict("The results of this batch are no longer stored.", code="results_gone")
    if not lines:
        raise Conflict("This batch has no failed, expired or cancelled requests.", code="nothing_to_retry")
    file = (await connection.execute(INPUT, where)).mappings().first()
    if file is None:
        raise input_gone()
    return file, lines


async def cut(
    database: Database, tenant_id: int, file: RowMapping, lines: frozenset[int], max_line_bytes: int
) -> AsyncIterator[bytes]:
    """The bytes of these physical lines, each with a newline; holds one chunk and one line.

    Raises:
        Conflict: the bytes were purged meanwhile.
    """
    splitter = LineSplitter(max_line_bytes)
    try:
        async for data in blobs.read(database, tenant_id, file["id"], Span(0, file["bytes"])):
            yield await asyncio.to_thread(lambda data: _kept(splitter.feed(data), lines), data)
    except Gone:
        raise input_gone() from None
    yield _kept(splitter.finish(), lines)


def _kept(found: Iterable[Line | LongLine], lines: frozenset[int]) -> bytes:
    return b"".join(line.data + b"\n" for line in found if isinstance(line, Line) and line.number in lines)
