"""What a worker says of itself and hears of others: heartbeats, grants, live load, decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

from scheduler.queue import statements
from slackwater.lifecycle import BatchState
from slackwater.storage.connections import Link

# Guarantees: with the instance's row locked no two workers reckon at once, so the slots of its fresh grants never sum up to more than `most`,
# but for what is in flight already. A worker gets what it asks for as far as others leave room, and no more than its even share while others
# ask for theirs. A grant lost in a crash is made anew a quarter of a second later.
LOCK_INSTANCE: Final = "SELECT 1 FROM instance WHERE id = %(instance_id)b::int FOR NO KEY UPDATE"
GRANT: Final = """
WITH others AS (
    SELECT count(*) FILTER (WHERE asked > 0) AS asking, coalesce(sum(asked), 0) AS asked, coalesce(sum(slots), 0) AS slots FROM "grant"
     WHERE instance_id = %(instance_id)b::int AND worker_id <> %(worker_id)b::int AND at > now() - interval '2 seconds')
INSERT INTO "grant" (worker_id, instance_id, asked, slots, in_flight)
SELECT %(worker_id)b::int, %(instance_id)b::int, %(asked)b::int,
       greatest(%(in_flight)b::int, least(%(asked)b::int, %(most)b::int - o.slots,
                                          greatest(ceil(%(most)b::float8 / (1 + o.asking)), %(most)b::int - o.asked)))::int,
       %(in_flight)b::int
  FROM others o
ON CONFLICT (worker_id) DO UPDATE SET asked = excluded.asked, slots = excluded.slots, in_flight = excluded.in_flight, at = now()
RETURNING slots
"""
SURROUNDINGS: Final = """
SELECT (SELECT count(*) FROM gateway),
       (SELECT max(coalesce(extract(epoch FROM now() - l.at), 'infinity'))::float8
          FROM gateway g LEFT JOIN live_load l ON l.gateway_id = g.id AND l.instance_id = %(instance_id)b::int),
       (SELECT coalesce(sum(l.running), 0) FROM live_load l JOIN gateway g ON g.id = l.gateway_id WHERE l.instance_id = %(instance_id)b::int),
       (SELECT coalesce(sum(l.waiting), 0) FROM live_load l JOIN gateway g ON g.id = l.gateway_id WHERE l.instance_id = %(instance_id)b::int),
       (SELECT max(l.ttft_p99_seconds)::float8 FROM live_load l JOIN gateway g ON g.id = l.gateway_id WHERE l.instance_id = %(instance_id)b::int),
       (SELECT max(l.itl_p99_seconds)::float8 FROM live_load l JOIN gateway g ON g.id = l.gateway_id WHERE l.instance_id = %(instance_id)b::int),
       (SELECT coalesce(sum(in_flight), 0) FROM "grant"
         WHERE instance_id = %(instance_id)b::int AND worker_id <> %(worker_id)b::int AND at > now() - interval '2 seconds')
"""
DECIDE: Final = """
INSERT INTO decision (worker_id, instance_id, admitted, reason, slots, prompt_tokens, details)
VALUES (%(worker_id)b, %(instance_id)b, %(admitted)b, %(reason)b, %(slots)b, %(prompt_tokens)b, %(details)b::text::json) ON CONFLICT DO NOTHING
"""
ALIVE: Final = "UPDATE worker SET heartbeat_at = now() WHERE id = %(worker_id)b::int"
MODELS: Final = """
SELECT m.id, m.name, i.upstream_name, coalesce(i.paused_until > now(), false)
  FROM instance_model i JOIN model m ON m.id = i.model_id JOIN instance s ON s.id = i.instance_id
 WHERE i.instance_id = %(instance_id)b::int AND s.disabled_at IS NULL
"""
PAUSE: Final = """
UPDATE instance_model SET paused_until = now() + %(seconds)b::float8 * interval '1 second', paused_reason = %(reason)b
 WHERE instance_id = %(instance_id)b::int AND model_id = %(model_id)b::int
"""
ATTEMPTS: Final = """
INSERT INTO attempt (tenant_id, batch_id, line, worker_id, instance_id, why, http, wasted_tokens)
SELECT tenant_id, batch_id, line, %(worker_id)b::int, %(instance_id)b::int, why, nullif(http, 0), wasted_tokens
  FROM unnest(%(tenants)b::bigint[], %(batches)b::bigint[], %(lines)b::int[], %(whys)b::text[], %(https)b::smallint[], %(wasted)b::int[])
    AS x (tenant_id, batch_id, line, why, http, wasted_tokens)
"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is on the instance. `live_age_seconds` is that of the oldest api process's figures; None without any process."""

    gateways: int
    live_age_seconds: float | None
    live_running: int
    live_waiting: int
    ttft_p99_seconds: float | None
    inter_token_p99_seconds: float | None
    others_in_flight: int


@dataclass(frozen=True, slots=True)
class Served:
    """A model that the instance serves, under its own name there."""

    id: int
    name: str
    upstream_name: str
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that gave no result. `wasted_tokens` are the prompt's, by estimate, where the engine may have computed them."""

    tenant_id: int
    batch_id: int
    line: int
    why: str
    http: int | None = None
    wasted_tokens: int = 0


@dataclass
class Status:
    """The connections a worker reports on; what it writes may be lost in a crash of the server.

    Heartbeats have their own: whoever holds up the instance's row, a worker that was stopped for one, must not cost its neighbours their leases. They
    commit synchronously: one that a crash of the server takes back is a call that was answered and looks as if it had not been.
    """

    link: Link
    worker_id: int
    instance_id: int
    pulse: Link

    @classmethod
    def on(cls, dsn: str, worker_id: int, instance_id: int) -> Self:
        return cls(Link(dsn, asynchronous_commit=True), worker_id, instance_id, Link(dsn))

    async def heartbeat(self, tokens: Sequence[UUID], lease_seconds: float) -> dict[UUID, BatchState]:
        """Extend these leases; returns those still held with the state of their batch. What is missing is lost."""
        connection = await self.pulse.get()
        values = {"tokens": list(tokens), "lease_seconds": lease_seconds}
        rows = await (await connection.execute(statements.HEARTBEAT, values, binary=True)).fetchall()
        await connection.execute(ALIVE, {"worker_id": self.worker_id})
        return {token: BatchState(state) for token, state in rows}

    async def surroundings(self) -> Surroundings:
        """What else is on the instance, by the database's clock."""
        rows = await self._run(SURROUNDINGS, {})
        gateways, age, running, waiting, ttft, inter_token, others = rows[0]
        return Surroundings(gateways, age, int(running), int(waiting), ttft, inter_token, int(others))

    async def ask(self, *, asked: int, most: int, in_flight: int) -> int:
        """Ask for slots on the instance, of which all workers together may have `most`; returns how many this one has now."""
        connection = await self.link.get()
        async with connection.transaction():
            await self._run(LOCK_INSTANCE, {})
            rows = await self._run(GRANT, {"asked": asked, "most": most, "in_flight": in_flight})
        granted: int = rows[0][0]
        return granted

    async def decide(
        self, *, admitted: bool, reason: str | None, slots: int, prompt_tokens: int, details: Mapping[str, Any]
    ) -> None:
        """Store a decision: what explains a wait."""
        values = {"admitted": admitted, "reason": reason, "slots": slots, "prompt_tokens": prompt_tokens}
        await self._run(DECIDE, values | {"details": json.dumps(details)})

    async def models(self) -> list[Served]:
        return [Served(*row) for row in await self._run(MODELS, {})]

    async def pause(self, model_id: int, seconds: float, reason: str) -> None:
        """Keep every worker of this instance from running a model for a while."""
        await self._run(PAUSE, {"model_id": model_id, "seconds": seconds, "reason": reason})

    async def note(self, failed: Sequence[Failed]) -> None:
        """Write down runs that gave no result."""
        columns = {
            "tenants": [f.tenant_id for f in failed],
            "batches": [f.batch_id for f in failed],
            "lines": [f.line for f in failed],
            "whys": [f.why for f in failed],
            "https": [f.http or 0 for f in failed],
            "wasted": [f.wasted_tokens for f in failed],
        }
        await self._run(ATTEMPTS, columns)

    async def leave(self) -> None:
        """This worker has stopped: it uses nothing any more."""
        await self._run("UPDATE worker SET stopped_at = now() WHERE id = %(worker_id)b::int", {})
        await self._run('DELETE FROM "grant" WHERE worker_id = %(worker_id)b::int', {})

    async def _run(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        own = {"worker_id": self.worker_id, "instance_id": self.instance_id}
        cursor = await (await self.link.get()).execute(statement.encode(), own | values, binary=True)
        return await cursor.fetchall() if cursor.description else []

    async def close(self) -> None:
        await self.link.close()
        await self.pulse.close()
