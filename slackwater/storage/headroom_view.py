"""What an operator wants to see of headroom: per worker its newest decision, what is live beside it, and what it may use."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

WORKERS = text("""
SELECT i.name AS instance, i.mode, i.max_slots, i.gpus, w.id AS worker, w.host,
       l.running AS live_running, l.waiting AS live_waiting, l.ttft, l.itl,
       g.in_flight, g.slots AS granted,
       d.admitted, d.reason, d.slots, d.prompt_tokens, d.details ->> 'message' AS message,
       extract(epoch FROM now() - d.at)::float8 AS age_seconds
  FROM instance i
  LEFT JOIN worker w ON w.instance_id = i.id AND w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '15 seconds'
  LEFT JOIN "grant" g ON g.worker_id = w.id AND g.at > now() - interval '2 seconds'
  LEFT JOIN LATERAL (
    SELECT sum(running) AS running, sum(waiting) AS waiting, max(ttft_p99_seconds) AS ttft, max(itl_p99_seconds) AS itl
      FROM live_load l JOIN gateway a ON a.id = l.gateway_id WHERE l.instance_id = i.id) l ON true
  LEFT JOIN LATERAL (
    SELECT * FROM decision d WHERE d.instance_id = i.id AND d.worker_id = w.id ORDER BY d.at DESC LIMIT 1) d ON true
 WHERE i.disabled_at IS NULL
 ORDER BY i.name, w.id
""")


async def workers(connection: AsyncConnection) -> list[dict[str, Any]]:
    """One row for each worker of an enabled instance, or one without a worker; for an `admin()` transaction. Times are seconds."""
    return [dict(row) for row in (await connection.execute(WORKERS)).mappings()]
