"""Every statement that races, by name, with its guarantee. Run on psycopg with binary parameters and generic plans.

`LIMIT 1` is literal and anti-joins are `LEFT JOIN LATERAL … LIMIT 1`: with parameters or `NOT EXISTS` a generic plan went wrong (measured).
"""

from __future__ import annotations

from typing import Final

# Guarantees: a position is in at most one of segment, lease and result-to-be: the segment row is locked, shrunk or deleted, and the lease is
# written, in one statement. Two workers never take the same position; a locked row is passed over, not waited for. Positions of a rescued or
# handed-back range that have a result are left out. Rows come unordered. No rows: nothing to take, or all of it was answered (then the lease
# exists and its token must be dropped).
CLAIM: Final = """
WITH c AS MATERIALIZED (
    SELECT s.* FROM unnest(%(batches)b::bigint[]) WITH ORDINALITY q (batch_id, turn)
     CROSS JOIN LATERAL (
        SELECT s.* FROM segment s
         WHERE s.state = 0 AND s.model_id = %(model_id)b::int AND s.batch_id = q.batch_id AND (%(retries)b::boolean OR s.attempts = 0)
         ORDER BY s.rank LIMIT 1 FOR UPDATE SKIP LOCKED) s
     LIMIT 1),
t AS MATERIALIZED (SELECT c.*, least(c.n, %(most)b::int)::smallint AS taken FROM c),
shrunk AS (UPDATE segment s SET first = s.first + t.taken, n = s.n - t.taken FROM t WHERE s.id = t.id AND t.taken < t.n),
emptied AS (DELETE FROM segment s USING t WHERE s.id = t.id AND t.taken = t.n),
leased AS (
    INSERT INTO lease (token, worker_id, tenant_id, batch_id, model_id, first, n, rescues, deaths, attempts, deferrals, expires_at)
    SELECT %(token)b::uuid, %(worker_id)b::int, tenant_id, batch_id, model_id, first, taken, rescues, deaths, attempts, deferrals,
           now() + %(lease_seconds)b::float8 * interval '1 second'
      FROM t)
SELECT t.tenant_id, t.batch_id, t.first, t.taken, t.rescues, t.deaths, t.attempts, t.deferrals,
       b.endpoint, b.file_id, p.input_picodollars, p.cached_picodollars, p.output_picodollars,
       r.position, r.line, r.custom_id, r.est_tokens, r.chunk, r.length, substr(f.data, r.start + 1, r.length)
  FROM t
  CROSS JOIN LATERAL (
    SELECT b.endpoint, b.file_id FROM batch b WHERE b.tenant_id = t.tenant_id AND b.id = t.batch_id AND b.state = 1 LIMIT 1) b
  CROSS JOIN LATERAL (
    SELECT * FROM batch_model p WHERE p.tenant_id = t.tenant_id AND p.batch_id = t.batch_id AND p.model_id = t.model_id LIMIT 1) p
  CROSS JOIN LATERAL (
    SELECT * FROM request r
     WHERE r.tenant_id = t.tenant_id AND r.batch_id = t.batch_id AND r.position >= t.first AND r.position < t.first + t.taken LIMIT 64) r
  CROSS JOIN LATERAL (
    SELECT f.data FROM file_chunk f WHERE f.tenant_id = t.tenant_id AND f.file_id = b.file_id AND f.n = r.chunk LIMIT 1) f
  LEFT JOIN LATERAL (
    SELECT 1 AS hit FROM result z
     WHERE t.rescues + t.attempts + t.deferrals > 0 AND z.tenant_id = t.tenant_id AND z.batch_id = t.batch_id AND z.line = r.line
     LIMIT 1) z ON true
 WHERE z.hit IS NULL
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

# Guarantees: only a lease that still exists is closed, and what it hands back becomes ready (or delayed) in the same transaction; nothing is
# handed back into a batch that does not run any more. Leases are locked in the order of their tokens.
_CLOSED: Final = """
held AS MATERIALIZED (
    SELECT token FROM lease WHERE token = ANY (%(tokens)b::uuid[] || %(closed)b::uuid[]) ORDER BY token FOR UPDATE),
closed AS (DELETE FROM lease l USING held h WHERE l.token = h.token AND l.token = ANY (%(closed)b::uuid[]) RETURNING l.*),
back AS (
    INSERT INTO segment (tenant_id, batch_id, model_id, rank, first, n, state, rescues, deaths, attempts, deferrals, run_at)
    SELECT c.tenant_id, c.batch_id, c.model_id, x.first, x.first, x.n, CASE WHEN x.delay > 0 THEN 3 ELSE 0 END,
           c.rescues, c.deaths, x.attempts, x.deferrals, now() + x.delay * interval '1 second'
      FROM unnest(%(back_tokens)b::uuid[], %(firsts)b::int[], %(ns)b::smallint[], %(delays)b::float8[], %(back_attempts)b::smallint[],
                  %(deferrals)b::smallint[]) AS x (token, first, n, delay, attempts, deferrals)
      JOIN closed c ON c.token = x.token
      JOIN batch b ON b.tenant_id = c.tenant_id AND b.id = c.batch_id AND b.state = 1)"""
RELEASE: Final = f"""
WITH {_CLOSED}
SELECT token FROM closed
"""

# Guarantees: a line gets one result, whoever comes first; a stored result never changes. Under a lease that was not taken back (locked until
# commit, so no rescue comes between) every outcome is stored; without one only a success, and only where the line has none; nothing is stored into
# a batch that is final. Counts, usage and cost move by exactly the rows inserted, also where one call brings a line twice. Inserts are ordered by
# line, so that writers that race on the same lines never deadlock. Leases that end here are closed in the same statement: one round trip.
STORE: Final = f"""
WITH {_CLOSED},
d AS MATERIALIZED (
    SELECT DISTINCT ON (d.tenant_id, d.batch_id, d.line) d.*
      FROM unnest(%(tokens)b::uuid[], %(tenants)b::bigint[], %(batches)b::bigint[], %(models)b::int[], %(lines)b::int[],
                         %(outcomes)b::smallint[], %(https)b::smallint[], %(prompts)b::int[], %(completions)b::int[], %(cacheds)b::int[],
                         %(costs)b::bigint[], %(attempts)b::smallint[], %(bodies)b::bytea[])
        WITH ORDINALITY
        AS d (token, tenant_id, batch_id, model_id, line, outcome, http, prompt_tokens, completion_tokens, cached_tokens, cost, attempt, body, turn)
      LEFT JOIN held h ON h.token = d.token
     WHERE (d.outcome = 0 OR h.token IS NOT NULL) AND d.batch_id <> ALL (ARRAY (
            SELECT id FROM batch WHERE tenant_id = ANY (%(tenants)b::bigint[]) AND id = ANY (%(batches)b::bigint[]) AND state NOT IN (1, 2, 6)))
     ORDER BY d.tenant_id, d.batch_id, d.line, d.turn),
stored AS (
    INSERT INTO result (tenant_id, batch_id, line, outcome, http, prompt_tokens, completion_tokens, cached_tokens, attempt, instance_id, body)
    SELECT d.tenant_id, d.batch_id, d.line, d.outcome, nullif(d.http, 0), d.prompt_tokens, d.completion_tokens, nullif(d.cached_tokens, -1),
           d.attempt, %(instance_id)b::int, d.body
      FROM d
     ORDER BY d.tenant_id, d.batch_id, d.line
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, batch_id, line, outcome, prompt_tokens, completion_tokens, cached_tokens),
sums AS MATERIALIZED (
    SELECT s.tenant_id, s.batch_id, d.model_id, count(*) FILTER (WHERE s.outcome = 0) AS succeeded, count(*) FILTER (WHERE s.outcome > 0) AS failed,
           sum(s.prompt_tokens) AS prompt_tokens, sum(s.completion_tokens) AS completion_tokens,
           coalesce(sum(s.cached_tokens), 0) AS cached_tokens, count(s.cached_tokens) AS cached_known, sum(d.cost) AS cost
      FROM stored s JOIN d ON d.line = s.line AND d.batch_id = s.batch_id AND d.tenant_id = s.tenant_id
     GROUP BY s.tenant_id, s.batch_id, d.model_id),
counted AS (
    INSERT INTO progress AS p (tenant_id, batch_id, slot, succeeded, failed, prompt_tokens, completion_tokens, cached_tokens, cached_known,
                               cost_picodollars)
    SELECT tenant_id, batch_id, %(worker_id)b::int, sum(succeeded), sum(failed), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
           sum(cached_known), sum(cost)
      FROM sums GROUP BY tenant_id, batch_id ORDER BY tenant_id, batch_id
    ON CONFLICT (tenant_id, batch_id, slot) DO UPDATE SET
        succeeded = p.succeeded + excluded.succeeded, failed = p.failed + excluded.failed,
        prompt_tokens = p.prompt_tokens + excluded.prompt_tokens, completion_tokens = p.completion_tokens + excluded.completion_tokens,
        cached_tokens = p.cached_tokens + excluded.cached_tokens, cached_known = p.cached_known + excluded.cached_known,
        cost_picodollars = p.cost_picodollars + excluded.cost_picodollars),
booked AS (
    INSERT INTO ledger (tenant_id, project_id, api_key_id, flow, model_id, batch_id, requests, prompt_tokens, completion_tokens, cached_tokens,
                        cost_picodollars)
    SELECT s.tenant_id, b.project_id, b.api_key_id, 'batch', s.model_id, s.batch_id, s.succeeded + s.failed, s.prompt_tokens, s.completion_tokens,
           s.cached_tokens, s.cost
      FROM sums s JOIN batch b ON b.tenant_id = s.tenant_id AND b.id = s.batch_id)
SELECT batch_id, line FROM stored
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

# Guarantees: as RELEASE, nothing comes back into a batch that does not run any more.
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

# Guarantees: as STORE, for lines that will not run: each missing line once, counts by exactly the rows inserted. Slot 0 is the duties'.
FILL: Final = """
WITH stored AS (
    INSERT INTO result (tenant_id, batch_id, line, outcome, prompt_tokens, completion_tokens, attempt, body)
    SELECT %(tenant_id)b, %(batch_id)b, d.line, %(outcome)b::smallint, 0, 0, 0, d.body
      FROM unnest(%(lines)b::int[], %(bodies)b::bytea[]) AS d (line, body)
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
