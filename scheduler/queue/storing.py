"""The statements that store what ended, by name, with their guarantees. What all of them keep: a line gets one result, whoever comes first; a stored
result never changes; counts, usage and cost move by exactly the rows inserted.
"""

from __future__ import annotations

from typing import Final

# Guarantees: only a lease that still exists is closed, and what it hands back becomes ready (or delayed) in the same transaction; nothing is
# handed back into a batch that does not run any more. Leases are locked in the order of their tokens.
_HELD: Final = """
held AS MATERIALIZED (
    SELECT token FROM lease WHERE token = ANY (%(tokens)b::uuid[] || %(closed)b::uuid[]) ORDER BY token FOR UPDATE)"""
_CLOSED: Final = """
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
WITH {_HELD}, {_CLOSED}
SELECT token FROM closed
"""

_COUNTS: Final = """tenant_id, batch_id, slot, succeeded, failed, prompt_tokens, completion_tokens, cached_tokens, cached_known,
                               cost_picodollars"""
_ADDED_AND_BOOKED: Final = """
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
      FROM sums s JOIN batch b ON b.tenant_id = s.tenant_id AND b.id = s.batch_id)"""

# Guarantees: all of it or nothing. All: every lease in `tokens` (each once; those of what ended, and those that end here) still exists, locked until
# the commit, so that no rescue comes between; no batch is final; no line has a result. Nothing, and no row: a lease is gone or a batch is final.
# Nothing, and a unique violation: a line has a result, or comes twice. Then STORE asks line by line. So the sums are known beforehand, one row
# for each batch, and no row has to ask whether it may be inserted: the server works a third less. It hands nothing back, and knows one model of
# a batch. Inserts are ordered by line, so that writers that race on the same lines never deadlock.
STORE_WHOLE: Final = f"""
WITH held AS MATERIALIZED (SELECT 1 FROM lease WHERE token = ANY (%(tokens)b::uuid[]) ORDER BY token FOR UPDATE),
sound AS MATERIALIZED (
    SELECT true AS is_sound
     WHERE (SELECT count(*) FROM held) = cardinality(%(tokens)b::uuid[])
       AND NOT EXISTS (
            SELECT 1 FROM batch WHERE tenant_id = ANY (%(sum_tenants)b::bigint[]) AND id = ANY (%(sum_batches)b::bigint[])
               AND state NOT IN (1, 2, 6))),
closed AS (DELETE FROM lease WHERE token = ANY (%(closed)b::uuid[]) AND (SELECT is_sound FROM sound)),
stored AS (
    INSERT INTO result (tenant_id, batch_id, line, outcome, http, prompt_tokens, completion_tokens, cached_tokens, attempt, instance_id, body)
    SELECT d.tenant_id, d.batch_id, d.line, d.outcome, nullif(d.http, 0), d.prompt_tokens, d.completion_tokens, nullif(d.cached_tokens, -1),
           d.attempt, %(instance_id)b::int, d.body
      FROM unnest(%(tenants)b::bigint[], %(batches)b::bigint[], %(lines)b::int[], %(outcomes)b::smallint[], %(https)b::smallint[],
                  %(prompts)b::int[], %(completions)b::int[], %(cacheds)b::int[], %(attempts)b::smallint[], %(bodies)b::bytea[])
        AS d (tenant_id, batch_id, line, outcome, http, prompt_tokens, completion_tokens, cached_tokens, attempt, body)
     WHERE (SELECT is_sound FROM sound)
     ORDER BY d.tenant_id, d.batch_id, d.line),
sums AS MATERIALIZED (
    SELECT *
      FROM unnest(%(sum_tenants)b::bigint[], %(sum_batches)b::bigint[], %(sum_models)b::int[], %(succeeded)b::int[], %(failed)b::int[],
                  %(sum_prompts)b::bigint[], %(sum_completions)b::bigint[], %(sum_cacheds)b::bigint[], %(cached_known)b::int[],
                  %(sum_costs)b::bigint[])
        AS s (tenant_id, batch_id, model_id, succeeded, failed, prompt_tokens, completion_tokens, cached_tokens, cached_known, cost)
     WHERE (SELECT is_sound FROM sound)),
counted AS (
    INSERT INTO progress AS p ({_COUNTS})
    SELECT tenant_id, batch_id, %(worker_id)b::int, succeeded, failed, prompt_tokens, completion_tokens, cached_tokens, cached_known, cost
      FROM sums{_ADDED_AND_BOOKED}
SELECT is_sound FROM sound
"""

# Guarantees: a line gets one result, whoever comes first; a stored result never changes. Under a lease that was not taken back (locked until
# commit, so no rescue comes between) every outcome is stored; without one only a success, and only where the line has none; nothing is stored into
# a batch that is final. Counts, usage and cost move by exactly the rows inserted, also where one call brings a line twice. Inserts are ordered by
# line, so that writers that race on the same lines never deadlock. Leases that end here are closed in the same statement: one round trip.
STORE: Final = f"""
WITH {_HELD}, {_CLOSED},
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
    INSERT INTO progress AS p ({_COUNTS})
    SELECT tenant_id, batch_id, %(worker_id)b::int, sum(succeeded), sum(failed), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
           sum(cached_known), sum(cost)
      FROM sums GROUP BY tenant_id, batch_id ORDER BY tenant_id, batch_id{_ADDED_AND_BOOKED}
SELECT batch_id, line FROM stored
"""
