"""A tenant's own line: its unfinished batches, and how fast its requests ended lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import explain
from slackwater.explain import Standing

RATE_SECONDS: Final = 300
SHORTEST_SPAN_SECONDS: Final = 5

LINE = text("""
SELECT b.id, b.priority, extract(epoch FROM b.expires_at - now())::float8 AS seconds_left,
       extract(epoch FROM b.expires_at - b.created_at)::float8 AS window_seconds,
       greatest(0, b.total - coalesce(p.done, 0))::int AS remaining, m.models
  FROM batch b
  LEFT JOIN LATERAL (SELECT sum(succeeded + failed + expired + cancelled) AS done FROM progress
                      WHERE tenant_id = b.tenant_id AND batch_id = b.id) p ON true
  JOIN LATERAL (SELECT array_agg(model_id) AS models FROM batch_model WHERE tenant_id = b.tenant_id AND batch_id = b.id) m ON true
 WHERE b.tenant_id = :tenant_id AND b.state = 1 AND m.models IS NOT NULL
""")
# Over the time since the first of them ended: a tenant that has just begun is not measured against minutes of nothing.
RATES = text(f"""
SELECT model_id, sum(requests)::float8 / extract(epoch FROM now() - min(at))::float8 AS rate
  FROM ledger
 WHERE tenant_id = :tenant_id AND flow = 'batch' AND at > now() - interval '{RATE_SECONDS} s'
 GROUP BY model_id HAVING now() - min(at) > interval '{SHORTEST_SPAN_SECONDS} s'
""")
NOW = text("SELECT extract(epoch FROM now())::float8")


@dataclass(frozen=True, slots=True)
class Line:
    """One reading of a tenant's line; `now` is the database's clock, in Unix seconds."""

    standings: Sequence[Standing]
    rates: Mapping[int, float]
    now: float

    def told(self, batch_id: int) -> dict[str, Any]:
        """What the object of a batch says of its turn: nothing of a batch that is not in the line."""
        mine = next((s for s in self.standings if s.batch_id == batch_id), None)
        if mine is None or not mine.remaining:
            return NOWHERE
        seconds = explain.seconds_to_completion(mine, self.standings, self.rates)
        return {
            "place_in_line": 1 + len(explain.ahead(mine, self.standings)),
            "estimated_completion_at": None if seconds is None else int(self.now + seconds),
        }


NOWHERE: Final[dict[str, Any]] = {"place_in_line": None, "estimated_completion_at": None}
NOBODY: Final = Line((), {}, 0.0)


async def read(connection: AsyncConnection, tenant_id: int) -> Line:
    """The line of a tenant as it is now."""
    where = {"tenant_id": tenant_id}
    rows = (await connection.execute(LINE, where)).all()
    rates = (await connection.execute(RATES, where)).all()
    now = (await connection.execute(NOW)).scalar_one()
    standings = [
        Standing(r.id, frozenset(r.models), r.priority, r.seconds_left, r.window_seconds, r.remaining) for r in rows
    ]
    return Line(standings, {row.model_id: row.rate for row in rates}, now)
