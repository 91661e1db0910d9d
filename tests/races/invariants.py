"""What must hold of the queue at every instant, each asked in one statement and so of one snapshot."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow

# Two ranges of one batch that share a position.
OVERLAPPING = """
WITH r AS (
    SELECT 's' || id AS name, batch_id, first, n FROM segment UNION ALL SELECT 'l' || token, batch_id, first, n FROM lease),
o AS (SELECT *, lead(first) OVER (PARTITION BY batch_id ORDER BY first, n) AS next FROM r)
SELECT name, batch_id, first, n, next FROM o WHERE next < first + n
"""
# Lines of a running batch that have no result and that no range covers: they would never run.
UNCOVERED = """
SELECT r.batch_id, r.position FROM batch b JOIN request r ON r.tenant_id = b.tenant_id AND r.batch_id = b.id
  LEFT JOIN result z ON z.tenant_id = r.tenant_id AND z.batch_id = r.batch_id AND z.line = r.line
 WHERE b.state = 1 AND z.line IS NULL
   AND NOT EXISTS (SELECT 1 FROM segment s WHERE s.batch_id = r.batch_id AND r.position >= s.first AND r.position < s.first + s.n)
   AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.batch_id = r.batch_id AND r.position >= l.first AND r.position < l.first + l.n)
"""
# Batches whose counters are not exactly their results.
MISCOUNTED = """
WITH p AS (
    SELECT batch_id, sum(succeeded) a, sum(failed) b, sum(expired) c, sum(cancelled) d, sum(prompt_tokens) e, sum(completion_tokens) f,
           sum(cached_tokens) g, sum(cached_known) h FROM progress GROUP BY batch_id),
r AS (
    SELECT batch_id, count(*) FILTER (WHERE outcome = 0) a, count(*) FILTER (WHERE outcome = 1) b, count(*) FILTER (WHERE outcome = 2) c,
           count(*) FILTER (WHERE outcome = 3) d, sum(prompt_tokens) e, sum(completion_tokens) f, coalesce(sum(cached_tokens), 0) g,
           count(cached_tokens) h FROM result GROUP BY batch_id)
SELECT coalesce(p.batch_id, r.batch_id), to_json(p), to_json(r) FROM p FULL JOIN r ON r.batch_id = p.batch_id
 WHERE (p.a, p.b, p.c, p.d, p.e, p.f, p.g, p.h) IS DISTINCT FROM (r.a, r.b, r.c, r.d, r.e, r.f, r.g, r.h)
"""
# Batches whose bill is not the counters of what ran.
MISBOOKED = """
WITH p AS (
    SELECT batch_id, sum(prompt_tokens) a, sum(completion_tokens) b, sum(cached_tokens) c, sum(cost_picodollars) d FROM progress GROUP BY batch_id),
l AS (
    SELECT batch_id, sum(prompt_tokens) a, sum(completion_tokens) b, sum(cached_tokens) c, sum(cost_picodollars) d, sum(requests) n
      FROM ledger GROUP BY batch_id),
r AS (SELECT batch_id, count(*) n FROM result WHERE instance_id IS NOT NULL GROUP BY batch_id)
SELECT p.batch_id FROM p LEFT JOIN l USING (batch_id) LEFT JOIN r USING (batch_id)
 WHERE (p.a, p.b, p.c, p.d) IS DISTINCT FROM (coalesce(l.a, 0), coalesce(l.b, 0), coalesce(l.c, 0), coalesce(l.d, 0))
    OR coalesce(l.n, 0) <> coalesce(r.n, 0)
"""
# Final batches that are not whole: every line one result, exactly one event, frozen counts, nothing left of its work.
UNFINISHED = """
SELECT b.id, b.state FROM batch b
 WHERE b.state IN (3, 5, 7) AND (
       (SELECT count(*) FROM result r WHERE r.tenant_id = b.tenant_id AND r.batch_id = b.id) <> b.total
    OR (SELECT count(*) FROM event e WHERE e.tenant_id = b.tenant_id AND e.batch_id = b.id) <> 1
    OR b.counts IS NULL
    OR EXISTS (SELECT 1 FROM segment s WHERE s.batch_id = b.id) OR EXISTS (SELECT 1 FROM lease l WHERE l.batch_id = b.id))
"""


def check_ranges(connection: Connection[TupleRow]) -> None:
    """No position is in two ranges, and none that has to run is in none."""
    assert rows(connection, OVERLAPPING) == []
    assert rows(connection, UNCOVERED) == []


def check_counts(connection: Connection[TupleRow]) -> None:
    """Counters and bill are exactly the results. Read in one snapshot each, so true under load too."""
    assert rows(connection, MISCOUNTED) == []
    assert rows(connection, MISBOOKED) == []


def check_finals(connection: Connection[TupleRow]) -> None:
    assert rows(connection, UNFINISHED) == []


def rows(connection: Connection[TupleRow], query: str) -> list[Any]:
    return connection.execute(query.encode()).fetchall()
