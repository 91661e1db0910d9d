"""Take back what expired leases held, and wake what was delayed."""

from __future__ import annotations

from typing import Final

from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.deaths import Crash, Range, after_death
from scheduler.queue import statements
from slackwater.lifecycle import Outcome
from slackwater.reader.output_line import error_line
from slackwater.settings import Settings
from slackwater.wire.lines import line_id

ANSWER_SHARE: Final = 0.5
POSITIONS: Final = (
    "SELECT line, custom_id FROM request WHERE tenant_id = %s AND batch_id = %s AND position = ANY (%s::int[])"
)


def wake_delayed(connection: Connection[TupleRow], settings: Settings) -> int:
    """Make delayed segments ready whose time has come."""
    return connection.execute(statements.READY_DELAYED).rowcount


def step(connection: Connection[TupleRow], settings: Settings) -> int:
    """Requeue what expired leases held, in the transaction that deletes them.

    A lease is called before it is taken back, half its length ahead of its end: a worker that dies loses nothing by that, and all those
    that a database which was away could not hear have as long again to be heard.
    """
    values = {"answer_seconds": settings.lease_seconds * ANSWER_SHARE}
    connection.execute(statements.CALL_SILENT, values)
    with connection.transaction():
        rows = connection.execute(statements.EXPIRED_LEASES, values).fetchall()
        back: list[tuple[int, int, int, Range, int, int]] = []
        crashes: dict[tuple[int, int], list[int]] = {}
        for tenant_id, batch_id, model_id, first, n, rescues, deaths, attempts, deferrals, was_alone in rows:
            after = after_death(first, n, rescues=rescues, deaths=deaths, was_alone=was_alone)
            if isinstance(after, Crash):
                crashes.setdefault((tenant_id, batch_id), []).append(after.position)
            else:
                back += [(tenant_id, batch_id, model_id, part, attempts, deferrals) for part in after]
        if back:
            _requeue(connection, back)
        for (tenant_id, batch_id), positions in sorted(crashes.items()):
            _store_crashes(connection, tenant_id, batch_id, positions)
    return len(rows)


def _requeue(connection: Connection[TupleRow], back: list[tuple[int, int, int, Range, int, int]]) -> None:
    connection.execute(
        statements.REQUEUE,
        {
            "tenants": [b[0] for b in back],
            "batches": [b[1] for b in back],
            "models": [b[2] for b in back],
            "firsts": [b[3].first for b in back],
            "ns": [b[3].n for b in back],
            "rescues": [b[3].rescues for b in back],
            "deaths": [b[3].deaths for b in back],
            "attempts": [b[4] for b in back],
            "deferrals": [b[5] for b in back],
        },
    )


def _store_crashes(connection: Connection[TupleRow], tenant_id: int, batch_id: int, positions: list[int]) -> None:
    """One statement for each batch, in the order of batches: so two rescuers, or one and a settler, never wait for each other."""
    found = connection.execute(POSITIONS, (tenant_id, batch_id, positions)).fetchall()
    message = "The engine died each time it ran this request alone."
    bodies = [error_line(line_id(batch_id, line), custom_id, "engine_crash", message) for line, custom_id in found]
    values = {"tenant_id": tenant_id, "batch_id": batch_id, "outcome": Outcome.FAILED.value}
    connection.execute(statements.FILL, values | {"lines": [line for line, _ in found], "bodies": bodies})
