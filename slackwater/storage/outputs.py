"""The output and error file of a batch: the stored lines of one side, in input order or that of completion, read in pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import Gone
from slackwater.lifecycle import Side
from slackwater.storage.database import Database
from slackwater.wire.ranges import Span

PAGE_LINES: Final = 256
PAGE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Index:
    """What was frozen of a side: its size, and line number and byte offset of every 256th line of the file, the first included.

    `ordered` are all its line numbers where they do not stand in input order.
    """

    bytes: int
    line: Sequence[int]
    start: Sequence[int]
    ordered: Sequence[int] | None = None

    def before(self, offset: int) -> tuple[int, int]:
        """The nearest known line at or before `offset`, and the byte at which it starts."""
        i = max(0, bisect_right(self.start, offset) - 1)
        return (self.line[i], self.start[i]) if self.line else (0, 0)


# A page has at most 256 lines, and ends after the line with which it passes 1 MiB: lengths are known without reading bodies.
_PAGE = """
SELECT line, body FROM (
    SELECT line, body, octet_length(body) AS length, sum(octet_length(body)) OVER (ORDER BY line) AS so_far FROM (
        SELECT line, body FROM result
         WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND line >= :line AND outcome {outcome}
         ORDER BY line LIMIT {lines}) page) measured
 WHERE so_far - length < {bytes} ORDER BY line
"""
PAGES = {
    Side.OUTPUT: text(_PAGE.format(outcome="= 0", lines=PAGE_LINES, bytes=PAGE_BYTES)),
    Side.ERROR: text(_PAGE.format(outcome="> 0", lines=PAGE_LINES, bytes=PAGE_BYTES)),
}
# The same for lines that are named, in the order in which they are.
NAMED = text(f"""
SELECT line, body FROM (
    SELECT o.n, r.line, r.body, octet_length(r.body) AS length, sum(octet_length(r.body)) OVER (ORDER BY o.n) AS so_far
      FROM unnest(CAST(:lines AS integer[])) WITH ORDINALITY o (line, n)
      JOIN result r ON r.tenant_id = :tenant_id AND r.batch_id = :batch_id AND r.line = o.line) page
 WHERE so_far - length < {PAGE_BYTES} ORDER BY n
""")
ORDER = text("SELECT output_order FROM batch WHERE tenant_id = :tenant_id AND id = :batch_id")
# The order of completion is that of the transactions which stored the lines; lines of one transaction stand in input order.
_COMPLETED = """
SELECT line FROM result WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND outcome {outcome} ORDER BY at, line
"""
COMPLETED = {
    Side.OUTPUT: text(_COMPLETED.format(outcome="= 0")),
    Side.ERROR: text(_COMPLETED.format(outcome="> 0")),
}
# Guarantees: a batch whose lines were read before this says so had all of them: the purge drops the index of a final batch first of all.
KEPT = text("""
SELECT EXISTS (SELECT FROM output_index WHERE tenant_id = :tenant_id AND batch_id = :batch_id)
    OR NOT EXISTS (SELECT FROM batch WHERE tenant_id = :tenant_id AND id = :batch_id AND counts IS NOT NULL AND total > 0)
""")
INDEX = text("""
SELECT bytes, line, start, ordered FROM output_index WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND side = :side
""")


async def index_of(database: Database, tenant_id: int, batch_id: int, side: Side) -> Index | None:
    """The frozen index of a side; None until the batch is final."""
    values = {"tenant_id": tenant_id, "batch_id": batch_id, "side": int(side)}
    async with database.tenant(tenant_id) as connection:
        row = (await connection.execute(INDEX, values)).first()
    return None if row is None else Index(row.bytes, row.line, row.start, row.ordered)


async def are_kept(connection: AsyncConnection, tenant_id: int, batch_id: int) -> bool:
    """Whether the results of a batch are all there. Asked after they were read: before, they may be purged in between."""
    return bool((await connection.execute(KEPT, {"tenant_id": tenant_id, "batch_id": batch_id})).scalar_one())


async def check_kept(connection: AsyncConnection, tenant_id: int, batch_id: int) -> None:
    """Raise Gone where the results of a batch are being purged, or were."""
    if not await are_kept(connection, tenant_id, batch_id):
        raise results_gone()


def results_gone() -> Gone:
    return Gone("The results of this batch are no longer stored.", code="results_gone")


async def lines(
    database: Database, tenant_id: int, batch_id: int, side: Side, line: int = 0
) -> AsyncIterator[list[bytes]]:
    """The stored lines of a side from the physical line number `line` on, in pages, each in its own transaction.

    Raises:
        Gone: the results were purged meanwhile.
    """
    values = {"tenant_id": tenant_id, "batch_id": batch_id, "line": line}
    while True:
        async with database.tenant(tenant_id) as connection:
            rows = (await connection.execute(PAGES[side], values)).all()
            await check_kept(connection, tenant_id, batch_id)
        if not rows:
            return
        yield [row.body for row in rows]
        values["line"] = rows[-1].line + 1


async def named(
    database: Database, tenant_id: int, batch_id: int, ordered: Sequence[int]
) -> AsyncIterator[list[bytes]]:
    """These stored lines in this order, in pages, each in its own transaction.

    Raises:
        Gone: the results were purged meanwhile.
    """
    at = 0
    while at < len(ordered):
        wanted = list(ordered[at : at + PAGE_LINES])
        async with database.tenant(tenant_id) as connection:
            values = {"tenant_id": tenant_id, "batch_id": batch_id, "lines": wanted}
            rows = (await connection.execute(NAMED, values)).all()
        if not rows or [row.line for row in rows] != wanted[: len(rows)]:
            raise results_gone()
        yield [row.body for row in rows]
        at += len(rows)


async def whole(database: Database, tenant_id: int, batch_id: int, side: Side) -> AsyncIterator[bytes]:
    """Everything that is stored of a side by now.

    Raises:
        Gone: the results were purged meanwhile.
    """
    where = {"tenant_id": tenant_id, "batch_id": batch_id}
    async with database.tenant(tenant_id) as connection:
        is_ordered = (await connection.execute(ORDER, where)).scalar_one() == "completion"
        ordered = (await connection.execute(COMPLETED[side], where)).scalars().all() if is_ordered else ()
        await check_kept(connection, tenant_id, batch_id)
    pages = named(database, tenant_id, batch_id, ordered) if is_ordered else lines(database, tenant_id, batch_id, side)
    async for page in pages:
        yield b"".join(page)


async def part(
    database: Database, tenant_id: int, batch_id: int, side: Side, index: Index, span: Span
) -> AsyncIterator[bytes]:
    """The bytes of `span` of a final side.

    Raises:
        Gone: the results were purged meanwhile.
    """
    line, at = index.before(span.start)
    if index.ordered:
        pages = named(database, tenant_id, batch_id, index.ordered[index.ordered.index(line) :])
    else:
        pages = lines(database, tenant_id, batch_id, side, line)
    async for page in pages:
        data = b"".join(page)
        piece = data[max(0, span.start - at) : max(0, span.stop - at)]
        at += len(data)
        if piece:
            yield piece
        if at >= span.stop:
            return
    raise results_gone()
