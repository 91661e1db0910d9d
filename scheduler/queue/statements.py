"""Every statement that races, by name, with its guarantee. Run on psycopg with binary parameters and generic plans.

`LIMIT 1` is literal and anti-joins are `LEFT JOIN LATERAL … LIMIT 1`: with parameters or `NOT EXISTS` a generic plan went wrong (measured).
"""

from __future__ import annotations

from typing import Final

# Guarantees: a position is in at most one of segment, lease and result-to-be: the segment row is locked, shrunk or deleted, and the lease is
# written, in one statement. Two workers never take the same position; a locked row is passed over, not waited for. Positions of a rescued or
# handed-back range that have a result are left out. No rows: nothing to take, or all of it was answered (then the lease exists and its token must
# be dropped).
# One row for each chunk that bodies begin in, in no order. `places` has (position, line, est_tokens, start, length) of each request. Looking into a
# chunk costs more than what lies between neighbours, so it is read once, from its first body to its last; null where that is far more than what
# is wanted: then BODIES brings it.
CLAIM: Final = """
WITH t AS MATERIALIZED (
    SELECT s.*, least(s.n, %(most)b::int)::smallint AS taken FROM unnest(%(batches)b::bigint[]) AS q (batch_id)
     CROSS JOIN LATERAL (
        SELECT s.* FROM segment s
         WHERE s.state = 0 AND s.model_id = %(model_id)b::int AND s.batch_id = q.batch_id AND (%(retries)b::boolean OR s.attempts = 0)
         ORDER BY s.rank LIMIT 1 FOR UPDATE SKIP LOCKED) s
     LIMIT 1),
shrunk AS (UPDATE segment s SET first = s.first + t.taken, n = s.n - t.taken FROM t WHERE s.id = t.id AND t.taken < t.n),
emptied AS (DELETE FROM segment s USING t WHERE s.id = t.id AND t.taken = t.n),
leased AS (
    INSERT INTO lease (token, worker_id, tenant_id, batch_id, model_id, first, n, rescues, deaths, attempts, deferrals, expires_at)
    SELECT %(token)b::uuid, %(worker_id)b::int, tenant_id, batch_id, model_id, first, taken, rescues, deaths, attempts, deferrals,
           now() + %(lease_seconds)b::float8 * interval '1 second'
      FROM t)
SELECT t.tenant_id, t.batch_id, t.first, t.taken, t.rescues, t.deaths, t.attempts, t.deferrals,
       b.endpoint, b.file_id, p.input_picodollars, p.cached_picodollars, p.output_picodollars,
       c.chunk, c.places, c.custom_ids, c.low, CASE WHEN c.high - c.low <= c.most THEN substr(f.data, c.low + 1, c.high - c.low) END
  FROM t
  CROSS JOIN LATERAL (
    SELECT b.endpoint, b.file_id FROM batch b WHERE b.tenant_id = t.tenant_id AND b.id = t.batch_id AND b.state = 1 LIMIT 1) b
  CROSS JOIN LATERAL (
    SELECT p.input_picodollars, p.cached_picodollars, p.output_picodollars FROM batch_model p
     WHERE p.tenant_id = t.tenant_id AND p.batch_id = t.batch_id AND p.model_id = t.model_id LIMIT 1) p
  CROSS JOIN LATERAL (
    SELECT r.chunk, array_agg(ARRAY[r.position, r.line, r.est_tokens, r.start, r.length]) AS places, array_agg(r.custom_id) AS custom_ids,
           min(r.start) AS low, max(r.start + r.length) AS high, 2 * sum(r.length) + 16384 AS most
      FROM (
        SELECT r.position, r.line, r.est_tokens, r.chunk, r.start, r.length, r.custom_id FROM request r
         WHERE r.tenant_id = t.tenant_id AND r.batch_id = t.batch_id AND r.position >= t.first AND r.position < t.first + t.taken LIMIT 64) r
      LEFT JOIN LATERAL (
        SELECT 1 AS hit FROM result z
         WHERE t.rescues + t.attempts + t.deferrals > 0 AND z.tenant_id = t.tenant_id AND z.batch_id = t.batch_id AND z.line = r.line
         LIMIT 1) z ON true
     WHERE z.hit IS NULL
     GROUP BY r.chunk) c
  CROSS JOIN LATERAL (
    SELECT f.data FROM file_chunk f WHERE f.tenant_id = t.tenant_id AND f.file_id = b.file_id AND f.n = c.chunk LIMIT 1) f
"""

# Bodies that lie far apart in one chunk.
BODIES: Final = """
SELECT substr(f.data, x.start + 1, x.length)
  FROM unnest(%(starts)b::int[], %(lengths)b::int[]) WITH ORDINALITY AS x (start, length, turn)
  CROSS JOIN LATERAL (
    SELECT f.data FROM file_chunk f WHERE f.tenant_id = %(tenant_id)b AND f.file_id = %(file_id)b AND f.n = %(chunk)b::int LIMIT 1) f
 ORDER BY x.turn
"""

# The rest of a body that is longer than the rest of its first chunk.
BODY_TAIL: Final = """
SELECT data FROM file_chunk
 WHERE tenant_id = %(tenant_id)b AND file_id = %(file_id)b AND n > %(chunk)b::int AND n <= %(chunk)b::int + 1 + %(length)b::int / 1048576 + 1
 ORDER BY n
"""

# Guarantees: a lease is extended as long as nobody took it back, also one that ran out while the database was away: its row says whose the range
# is. A token that does not come back is lost: abort what it covers. `state` other than 1 means that the batch does not want its requests run any
# more. Leases are locked in the order of their tokens, here and wherever several are.
HEARTBEAT: Final = """
WITH x AS MATERIALIZED (
    SELECT token FROM lease WHERE token = ANY (%(tokens)b::uuid[]) ORDER BY token FOR UPDATE),
h AS (
    UPDATE lease l SET expires_at = now() + %(lease_seconds)b::float8 * interval '1 second', called_at = NULL FROM x WHERE l.token = x.token
    RETURNING l.token, l.tenant_id, l.batch_id)
SELECT h.token, b.state FROM h JOIN batch b ON b.tenant_id = h.tenant_id AND b.id = h.batch_id
"""

# Marks that the one request of this lease begins with nothing else of ours in its engine: only then a death counts against it.
MARK_ALONE: Final = "UPDATE lease SET is_alone = true WHERE token = %(token)b"

# Asks the holders of leases that are about to run out, or did, whether they are still there. The next heartbeat is the answer.
CALL_SILENT: Final = """
WITH x AS MATERIALIZED (
    SELECT token FROM lease WHERE called_at IS NULL AND expires_at < now() + %(answer_seconds)b::float8 * interval '1 second'
     ORDER BY token FOR UPDATE SKIP LOCKED)
UPDATE lease l SET called_at = now() FROM x WHERE l.token = x.token
"""
# Guarantees: an expired lease is taken back by exactly one rescuer, not while its holder commits results under it, and not before its holder could
# have answered a call: silence while nobody could be heard is no death.
EXPIRED_LEASES: Final = """
WITH x AS MATERIALIZED (
    SELECT token FROM lease
     WHERE expires_at < now() AND called_at < now() - %(answer_seconds)b::float8 * interval '1 second'
     ORDER BY expires_at LIMIT 500 FOR UPDATE SKIP LOCKED)
DELETE FROM lease l USING x WHERE l.token = x.token
RETURNING l.tenant_id, l.batch_id, l.model_id, l.first, l.n, l.rescues, l.deaths, l.attempts, l.deferrals, l.is_alone
"""

# Guarantees: as `storing.RELEASE`, nothing comes back into a batch that does not run any more.
REQUEUE: Final = """
INSERT INTO segment (tenant_id, batch_id, model_id, rank, first, n, rescues, deaths, attempts, deferrals)
SELECT x.tenant_id, x.batch_id, x.model_id, x.first, x.first, x.n, x.rescues, x.deaths, x.attempts, x.deferrals
  FROM unnest(%(tenants)b::bigint[], %(batches)b::bigint[], %(models)b::int[], %(firsts)b::int[], %(ns)b::smallint[], %(rescues)b::smallint[],
              %(deaths)b::smallint[], %(attempts)b::smallint[], %(deferrals)b::smallint[])
    AS x (tenant_id, batch_id, model_id, first, n, rescues, deaths, attempts, deferrals)
  JOIN batch b ON b.tenant_id = x.tenant_id AND b.id = x.batch_id AND b.state = 1
"""

# Guarantees: idempotent; a delayed segment becomes ready once its time has come. Waits for nobody: what is locked is being deleted.
READY_DELAYED: Final = """
WITH x AS MATERIALIZED (SELECT id FROM segment WHERE state = 3 AND run_at <= now() ORDER BY run_at LIMIT 2000 FOR UPDATE SKIP LOCKED)
UPDATE segment s SET state = 0, run_at = NULL FROM x WHERE s.id = x.id
"""
# Guarantees: whoever deletes the segments of a batch locks them in one order.
DROP_SEGMENTS: Final = """
WITH x AS MATERIALIZED (SELECT id FROM segment WHERE batch_id = %(batch_id)s ORDER BY id FOR UPDATE)
DELETE FROM segment s USING x WHERE s.id = x.id
"""
DROP_LEASES: Final = """
WITH x AS MATERIALIZED (SELECT token FROM lease WHERE batch_id = %(batch_id)s ORDER BY token FOR UPDATE)
DELETE FROM lease l USING x WHERE l.token = x.token
"""

# Guarantees: as `storing.STORE`, for lines that will not run: each missing line once, counts by exactly the rows inserted; none into a final
# batch, whose results may have been purged. Slot 0 is the duties'.
FILL: Final = """
WITH stored AS (
    INSERT INTO result (tenant_id, batch_id, line, outcome, prompt_tokens, completion_tokens, attempt, body)
    SELECT %(tenant_id)b, %(batch_id)b, d.line, %(outcome)b::smallint, 0, 0, 0, d.body
      FROM unnest(%(lines)b::int[], %(bodies)b::bytea[]) AS d (line, body)
     WHERE EXISTS (SELECT 1 FROM batch b WHERE b.tenant_id = %(tenant_id)b AND b.id = %(batch_id)b AND b.state IN (0, 1, 2, 6))
     ORDER BY d.line
    ON CONFLICT DO NOTHING
    RETURNING outcome),
counted AS (
    INSERT INTO progress AS p (tenant_id, batch_id, slot, failed, expired, cancelled)
    SELECT %(tenant_id)b, %(batch_id)b, 0, count(*) FILTER (WHERE outcome = 1), count(*) FILTER (WHERE outcome = 2),
           count(*) FILTER (WHERE outcome = 3)
      FROM stored HAVING count(*) > 0
    ON CONFLICT (tenant_id, batch_id, slot) DO UPDATE SET
        failed = p.failed + excluded.failed, expired = p.expired + excluded.expired, cancelled = p.cancelled + excluded.cancelled)
SELECT count(*) FROM stored
"""

# The lines of a batch that have no result, from a position on.
MISSING: Final = """
SELECT r.position, r.line, r.custom_id
  FROM request r
  LEFT JOIN LATERAL (
    SELECT 1 AS hit FROM result z
     WHERE z.tenant_id = %(tenant_id)b AND z.batch_id = %(batch_id)b AND z.line = r.line LIMIT 1) z ON true
 WHERE r.tenant_id = %(tenant_id)b AND r.batch_id = %(batch_id)b AND r.position >= %(first)b::int AND z.hit IS NULL
 ORDER BY r.position LIMIT 2000
"""

# Everything with ready work for these models, and how much each tenant was served in the last ten minutes. Read at most once a second. The order
# of `ready` is for the planner: without it, it may look through the whole table for a batch whose segments lie at its end.
LINE: Final = """
SELECT b.tenant_id, b.id, p.model_id, b.priority, t.weight, coalesce(u.tokens, 0)::bigint,
       extract(epoch FROM b.expires_at - now())::float8, extract(epoch FROM b.expires_at - b.created_at)::float8
  FROM batch b
  CROSS JOIN LATERAL (
    SELECT p.model_id FROM batch_model p
     WHERE p.tenant_id = b.tenant_id AND p.batch_id = b.id AND p.model_id = ANY (%(models)b::int[]) LIMIT 1000) p
  CROSS JOIN LATERAL (SELECT t.weight FROM tenant t WHERE t.id = b.tenant_id LIMIT 1) t
  CROSS JOIN LATERAL (
    SELECT 1 FROM segment s WHERE s.state = 0 AND s.model_id = p.model_id AND s.batch_id = b.id ORDER BY s.rank LIMIT 1) ready
  LEFT JOIN (
    SELECT tenant_id, sum(prompt_tokens + completion_tokens) AS tokens FROM ledger WHERE at > now() - interval '10 minutes' GROUP BY tenant_id) u
    ON u.tenant_id = b.tenant_id
 WHERE b.state = 1
"""
