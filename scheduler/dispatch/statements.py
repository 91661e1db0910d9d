"""The racing statements of the sender. Role: `sw_worker`. The database's clock rules."""

from __future__ import annotations

# Guarantees: a delivery is in one sender's hands until its lease ends; a second claim takes it only after that, under a new token.
# Fair by lanes: the oldest due deliveries of each endpoint, at most `per_endpoint` in flight for one endpoint and `per_tenant` for one
# tenant, so that a receiver that hangs holds up nobody else. (Two senders that claim in the same instant may reach twice these.)
# Endpoints that are disabled or deleted are passed over. URL and secrets are those of this moment. `locked` names every column of the
# index of what is due: without statistics the planner takes that index, and by the id alone it would read all of it for each row.
CLAIM = """
WITH RECURSIVE lane AS (
    (SELECT tenant_id, endpoint_id FROM delivery WHERE state = 0 ORDER BY tenant_id, endpoint_id LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.endpoint_id
      FROM lane l
     CROSS JOIN LATERAL (SELECT d.tenant_id, d.endpoint_id FROM delivery d
                          WHERE d.state = 0 AND (d.tenant_id, d.endpoint_id) > (l.tenant_id, l.endpoint_id)
                          ORDER BY d.tenant_id, d.endpoint_id LIMIT 1) n
), open_lane AS MATERIALIZED (
    SELECT l.tenant_id, l.endpoint_id, b.n AS busy, sum(b.n) OVER (PARTITION BY l.tenant_id) AS tenant_busy
      FROM lane l
      JOIN endpoint p ON p.tenant_id = l.tenant_id AND p.id = l.endpoint_id AND p.disabled_at IS NULL AND p.deleted_at IS NULL
     CROSS JOIN LATERAL (SELECT count(*) AS n FROM delivery d
                          WHERE d.tenant_id = l.tenant_id AND d.endpoint_id = l.endpoint_id AND d.state = 0
                            AND d.token IS NOT NULL AND d.next_at > now()) b
), due AS (
    SELECT d.tenant_id, l.endpoint_id, d.id, d.next_at, l.tenant_busy
      FROM open_lane l
     CROSS JOIN LATERAL (SELECT d.tenant_id, d.id, d.next_at FROM delivery d
                          WHERE d.tenant_id = l.tenant_id AND d.endpoint_id = l.endpoint_id AND d.state = 0 AND d.next_at <= now()
                          ORDER BY d.next_at, d.id LIMIT greatest(%(per_endpoint)s::bigint - l.busy, 0)) d
), ranked AS (
    SELECT tenant_id, endpoint_id, id, next_at, tenant_busy + row_number() OVER (PARTITION BY tenant_id ORDER BY next_at, id) AS place FROM due
), locked AS MATERIALIZED (
    SELECT d.tenant_id, d.id
      FROM (SELECT tenant_id, endpoint_id, id, next_at FROM ranked WHERE place <= %(per_tenant)s::bigint
             ORDER BY next_at, id LIMIT %(most)s::bigint) r
      JOIN delivery d ON d.tenant_id = r.tenant_id AND d.endpoint_id = r.endpoint_id AND d.next_at = r.next_at AND d.id = r.id
     WHERE d.state = 0 AND d.next_at <= now()
       FOR UPDATE OF d SKIP LOCKED
), claimed AS (
    UPDATE delivery d SET token = gen_random_uuid(), next_at = now() + make_interval(secs => %(lease)s::float8)
      FROM locked p WHERE d.tenant_id = p.tenant_id AND d.id = p.id
    RETURNING d.tenant_id, d.id, d.token, d.attempts, d.event_id, d.endpoint_id
)
SELECT c.tenant_id, c.id, c.token, c.attempts, e.public_id, e.body, p.id, p.public_id, p.url,
       ARRAY(SELECT s.sealed FROM secret s
              WHERE s.tenant_id = c.tenant_id AND s.endpoint_id = c.endpoint_id AND (s.expires_at IS NULL OR s.expires_at > now())
              ORDER BY s.id DESC)
  FROM claimed c
  JOIN event e ON e.tenant_id = c.tenant_id AND e.id = c.event_id
  JOIN endpoint p ON p.tenant_id = c.tenant_id AND p.id = c.endpoint_id
"""

# Guarantees: only the holder of the live token records; an attempt whose lease another sender took over changes nothing. The attempt's
# row and the delivery's new state are one statement.
RECORD = """
WITH done AS (
    SELECT * FROM unnest(%(tenant_ids)s::bigint[], %(ids)s::bigint[], %(tokens)s::uuid[], %(states)s::smallint[], %(waits)s::float8[],
                         %(started)s::timestamptz[], %(seconds)s::real[], %(https)s::smallint[], %(errors)s::text[], %(replies)s::bytea[])
        AS t (tenant_id, id, token, state, wait, started, seconds, http, error, reply)
), recorded AS (
    UPDATE delivery d
       SET state = t.state, attempts = d.attempts + 1, token = NULL, next_at = now() + make_interval(secs => t.wait),
           delivered_at = CASE WHEN t.state = 1 THEN now() ELSE d.delivered_at END
      FROM done t
     WHERE d.tenant_id = t.tenant_id AND d.id = t.id AND d.token = t.token
    RETURNING d.tenant_id, d.id, d.attempts, t.started, t.seconds, t.http, t.error, t.reply
)
INSERT INTO delivery_attempt (tenant_id, delivery_id, n, at, seconds, http, error, reply)
SELECT tenant_id, id, attempts, started, seconds, http, error, reply FROM recorded
"""

# Guarantees: an endpoint is disabled once, with the first reason; its deliveries stay, and wait.
DISABLE = """
UPDATE endpoint SET disabled_at = now(), disabled_reason = %(reason)s, updated_at = now()
 WHERE tenant_id = %(tenant_id)s AND id = %(endpoint_id)s AND disabled_at IS NULL AND deleted_at IS NULL
"""

# Guarantees: only claims that are still ours are handed back; each is due at once and its attempts are unchanged.
HAND_BACK = """
UPDATE delivery d SET token = NULL, next_at = now()
  FROM unnest(%(tenant_ids)s::bigint[], %(ids)s::bigint[], %(tokens)s::uuid[]) AS t (tenant_id, id, token)
 WHERE d.tenant_id = t.tenant_id AND d.id = t.id AND d.token = t.token
"""

# Guarantees: what waits for a deleted endpoint is dropped, in slices; what is in flight is left to its sender until its lease ends.
DROP = """
UPDATE delivery SET state = 3, token = NULL
 WHERE (tenant_id, id) IN (
    SELECT d.tenant_id, d.id FROM delivery d JOIN endpoint p ON p.tenant_id = d.tenant_id AND p.id = d.endpoint_id
     WHERE p.deleted_at IS NOT NULL AND d.state = 0 AND (d.token IS NULL OR d.next_at <= now())
     LIMIT 1000 FOR UPDATE OF d SKIP LOCKED)
"""
