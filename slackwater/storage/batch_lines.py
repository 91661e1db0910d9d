"""The lines of a batch one by one: pages of results, and what became of one request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.lifecycle import Outcome, RequestState
from slackwater.storage import outputs
from slackwater.storage.database import Database

PIECE_LINES: Final = 256
PIECE_BYTES: Final = 1 << 20

# The last line of a page, and how many there are from its start, one more than fits included; no body is read.
PAGE = text("""
SELECT line FROM result
 WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND line > :after AND (CAST(:outcome AS smallint) IS NULL OR outcome = :outcome)
 ORDER BY line LIMIT :limit
""")
PIECE = text(f"""
SELECT line, body FROM (
    SELECT line, body, octet_length(body) AS length, sum(octet_length(body)) OVER (ORDER BY line) AS so_far FROM (
        SELECT line, body FROM result
         WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND line > :after AND line <= :last
           AND (CAST(:outcome AS smallint) IS NULL OR outcome = :outcome)
         ORDER BY line LIMIT {PIECE_LINES}) piece) measured
 WHERE so_far - length < {PIECE_BYTES} ORDER BY line
""")
# There is no index on custom_id: `request` is insert-only with one index, and reading the rows of one batch in order is fast enough.
REQUEST = text("""
SELECT r.position, r.line, m.name AS model FROM request r JOIN model m ON m.id = r.model_id
 WHERE r.tenant_id = :tenant_id AND r.batch_id = :batch_id AND r.custom_id = :custom_id
""")
# A line that was refused while the rest of its batch runs has no request, only an error line that begins with its id and its custom_id.
REFUSED = text("""
SELECT line FROM result
 WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND outcome = 1 AND attempt = 0
   AND substr(body, 1, octet_length(:head) + octet_length(to_hex(line)) + octet_length(:tail))
       = CAST(:head AS bytea) || convert_to(to_hex(line), 'UTF8') || CAST(:tail AS bytea)
 LIMIT 1
""")
# Guarantees: one snapshot. Asked one after the other, a request that ends in between would be found in none of the three.
STATE = text("""
SELECT r.outcome, r.attempt, r.body, l.attempts AS held, s.attempts AS waiting
  FROM (SELECT 1) one
  LEFT JOIN result r ON r.tenant_id = :tenant_id AND r.batch_id = :batch_id AND r.line = :line
  LEFT JOIN LATERAL (
    SELECT attempts FROM lease WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND first <= :position AND first + n > :position
       AND expires_at > now() LIMIT 1) l ON r.line IS NULL
  LEFT JOIN LATERAL (
    SELECT attempts FROM segment WHERE tenant_id = :tenant_id AND batch_id = :batch_id AND first <= :position AND first + n > :position
     LIMIT 1) s ON r.line IS NULL
""")


@dataclass(frozen=True, slots=True)
class Page:
    """Results of a batch after line `after`, up to and including line `last`; 0 where there is none."""

    tenant_id: int
    batch_id: int
    after: int
    outcome: Outcome | None
    last: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a request; `result` is its stored line, newline included. `attempts` counts runs, one that goes on included."""

    line: int
    model: str | None
    state: RequestState
    attempts: int
    result: bytes | None


async def page(
    connection: AsyncConnection, tenant_id: int, batch_id: int, after: int, limit: int, outcome: Outcome | None
) -> Page:
    """The bounds of a page of at most `limit` results.

    Raises:
        Gone: the results of the batch were purged.
    """
    values = {
        "tenant_id": tenant_id,
        "batch_id": batch_id,
        "after": after,
        "limit": limit + 1,
        "outcome": None if outcome is None else int(outcome),
    }
    lines = (await connection.execute(PAGE, values)).scalars().all()
    await outputs.check_kept(connection, tenant_id, batch_id)
    kept = lines[:limit]
    return Page(tenant_id, batch_id, after, outcome, kept[-1] if kept else 0, len(lines) > limit)


async def read(database: Database, page: Page) -> AsyncIterator[bytes]:
    """The lines of a page, in pieces of about 1 MiB, each in its own transaction.

    Raises:
        Gone: they were purged meanwhile.
    """
    after = page.after
    while after < page.last:
        values = {
            "tenant_id": page.tenant_id,
            "batch_id": page.batch_id,
            "after": after,
            "last": page.last,
            "outcome": None if page.outcome is None else int(page.outcome),
        }
        async with database.tenant(page.tenant_id) as connection:
            rows = (await connection.execute(PIECE, values)).all()
            await outputs.check_kept(connection, page.tenant_id, page.batch_id)
        if not rows:
            raise outputs.results_gone()
        yield b"".join(row.body for row in rows)
        after = rows[-1].line


async def find(
    connection: AsyncConnection, tenant_id: int, batch_id: int, custom_id: str, *, may_be_refused: bool
) -> Found | None:
    """The request with this custom_id; None when the batch has none, or is not checked yet.

    `may_be_refused`: lines that were refused while the rest runs are looked through as well.

    Raises:
        Gone: the results of the batch were purged.
    """
    where: dict[str, Any] = {"tenant_id": tenant_id, "batch_id": batch_id}
    request = (await connection.execute(REQUEST, where | {"custom_id": custom_id})).first()
    if request is not None:
        found: Found | None = await _state(
            connection, where | {"position": request.position}, request.line, request.model
        )
    elif may_be_refused:
        line = (await connection.execute(REFUSED, where | _opening(batch_id, custom_id))).scalar_one_or_none()
        found = None if line is None else await _state(connection, where | {"position": None}, line, None)
    else:
        found = None
    if found is None or found.result is None:
        await outputs.check_kept(connection, tenant_id, batch_id)
    return found


async def _state(connection: AsyncConnection, where: dict[str, Any], line: int, model: str | None) -> Found:
    row = (await connection.execute(STATE, where | {"line": line})).one()
    if row.outcome is not None:
        return Found(line, model, Outcome(row.outcome).state, row.attempt, bytes(row.body))
    if row.held is not None:
        return Found(line, model, RequestState.RUNNING, row.held + 1, None)
    return Found(line, model, RequestState.QUEUED, row.waiting or 0, None)


def _opening(batch_id: int, custom_id: str) -> dict[str, bytes]:
    """How `slackwater.reader.output_line` begins a line, around the hexadecimal line number."""
    head = f'{{"id":"batch_req_{batch_id:x}_'.encode()
    return {"head": head, "tail": f'","custom_id":{json.dumps(custom_id)},'.encode()}
