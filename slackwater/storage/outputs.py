"""The output and error file of a batch: the stored lines of one side in input order, read in keyset pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from slackwater.lifecycle import Side
from slackwater.storage.database import Database
from slackwater.wire.ranges import Span

PAGE_LINES: Final = 256
PAGE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Index:
    """What was frozen of a side: its size, and line number and byte offset of every 256th stored line, the first included."""

    bytes: int
    line: Sequence[int]
    start: Sequence[int]

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
INDEX = text("""
SELECT bytes, line, start FROM output_index WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND side = :side
""")


async def index_of(database: Database, tenant_id: int, batch_id: int, side: Side) -> Index | None:
    """The frozen index of a side; None until the batch is final."""
    values = {"tenant_id": tenant_id, "batch_id": batch_id, "side": int(side)}
    async with database.tenant(tenant_id) as connection:
        row = (await connection.execute(INDEX, values)).first()
    return None if row is None else Index(row.bytes, row.line, row.start)


async def lines(
    database: Database, tenant_id: int, batch_id: int, side: Side, line: int = 0
) -> AsyncIterator[list[bytes]]:
    """The stored lines of a side from the physical line number `line` on, in pages, each in its own transaction."""
    values = {"tenant_id": tenant_id, "batch_id": batch_id, "line": line}
    while True:
        async with database.tenant(tenant_id) as connection:
            rows = (await connection.execute(PAGES[side], values)).all()
        if not rows:
            return
        yield [row.body for row in rows]
        values["line"] = rows[-1].line + 1


async def whole(database: Database, tenant_id: int, batch_id: int, side: Side) -> AsyncIterator[bytes]:
    """Everything that is stored of a side by now."""
    async for page in lines(database, tenant_id, batch_id, side):
        yield b"".join(page)


async def part(
    database: Database, tenant_id: int, batch_id: int, side: Side, index: Index, span: Span
) -> AsyncIterator[bytes]:
    """The bytes of `span` of a final side.

    Raises:
        EOFError: the results were purged meanwhile.
    """
    line, at = index.before(span.start)
    async for page in lines(database, tenant_id, batch_id, side, line):
        data = b"".join(page)
        piece = data[max(0, span.start - at) : max(0, span.stop - at)]
        at += len(data)
        if piece:
            yield piece
        if at >= span.stop:
            return
    raise EOFError("the file ends early")
