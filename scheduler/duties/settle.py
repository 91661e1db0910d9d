"""Bring a batch that was cancelled, or whose window has ended, to its end: nothing of it runs, and every line has a result.

Whoever races a worker on a line wins or loses on the primary key of `result`, never both.
"""

from __future__ import annotations

from typing import Final

from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties.each import each
from scheduler.queue import statements
from slackwater.lifecycle import Outcome
from slackwater.reader.output_line import error_line
from slackwater.settings import Settings
from slackwater.wire.lines import ENDED, line_id

# Guarantees: only a batch that still runs, is over its deadline and is not done expires.
EXPIRE: Final = """
WITH due AS MATERIALIZED (
    SELECT tenant_id, id, total FROM batch WHERE state = 1 AND expires_at < now() ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
UPDATE batch b SET state = 2, ending = 5, finalizing_at = now()
  FROM due LEFT JOIN LATERAL (
    SELECT sum(succeeded + failed + expired + cancelled) AS done FROM progress p WHERE p.tenant_id = due.tenant_id AND p.batch_id = due.id) d
    ON true
 WHERE b.tenant_id = due.tenant_id AND b.id = due.id AND b.state = 1 AND coalesce(d.done, 0) < due.total
RETURNING b.id
"""
# Batches to settle, and whether a worker still holds something of them. A worker lets go at its next heartbeat; nobody is waited for longer
# than a lease lasts.
ENDING: Final = """
SELECT b.tenant_id, b.id, b.state,
       EXISTS (SELECT 1 FROM lease l WHERE l.batch_id = b.id AND l.expires_at > now())
       AND now() < coalesce(b.cancelling_at, b.finalizing_at) + %(lease_seconds)s * interval '1 second'
  FROM batch b
  LEFT JOIN LATERAL (
    SELECT sum(succeeded + failed + expired + cancelled) AS done FROM progress p WHERE p.tenant_id = b.tenant_id AND p.batch_id = b.id) d ON true
 WHERE (b.state = 6 OR (b.state = 2 AND b.ending = 5)) AND coalesce(d.done, 0) < b.total
 ORDER BY b.id LIMIT 100
"""


def expire(connection: Connection[TupleRow], settings: Settings) -> int:
    """Let batches whose window has ended expire."""
    return len(connection.execute(EXPIRE).fetchall())


def step(connection: Connection[TupleRow], settings: Settings) -> int:
    """Fill in the missing lines of batches that end early, in slices of at most 2,000, one commit each."""
    rows = connection.execute(ENDING, {"lease_seconds": settings.lease_seconds}).fetchall()
    return each(rows, lambda row: _settle(connection, *row))


def _settle(connection: Connection[TupleRow], tenant_id: int, batch_id: int, state: int, is_held: bool) -> int:
    connection.execute(statements.DROP_SEGMENTS, {"batch_id": batch_id})
    if is_held:
        return 0
    return _fill(connection, tenant_id, batch_id, Outcome.CANCELLED if state == 6 else Outcome.EXPIRED)


def _fill(connection: Connection[TupleRow], tenant_id: int, batch_id: int, outcome: Outcome) -> int:
    where = {"tenant_id": tenant_id, "batch_id": batch_id}
    first = filled = 0
    while rows := connection.execute(statements.MISSING, where | {"first": first}).fetchall():
        lines = [line for _, line, _ in rows]
        bodies = [error_line(line_id(batch_id, line), custom_id, *ENDED[outcome]) for _, line, custom_id in rows]
        values = where | {"outcome": outcome.value, "lines": lines, "bodies": bodies}
        connection.execute(statements.FILL, values)
        filled += len(rows)
        first = rows[-1][0] + 1
    return filled
