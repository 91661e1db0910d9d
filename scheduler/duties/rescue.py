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

POSITION: Final = "SELECT line, custom_id FROM request WHERE tenant_id = %s AND batch_id = %s AND position = %s"


def wake_delayed(connection: Connection[TupleRow], settings: Settings) -> int:
    """Make delayed segments ready whose time has come."""
    return connection.execute(statements.READY_DELAYED).rowcount


def step(connection: Connection[TupleRow], settings: Settings) -> int:
    """Requeue what expired leases held, in the transaction that deletes them."""
    with connection.transaction():
        rows = connection.execute(statements.EXPIRED_LEASES).fetchall()
        back: list[tuple[int, int, int, Range, int, int]] = []
        for tenant_id, batch_id, model_id, first, n, rescues, deaths, attempts, deferrals, was_alone in rows:
            after = after_death(first, n, rescues=rescues, deaths=deaths, was_alone=was_alone)
            if isinstance(after, Crash):
                _store_crash(connection, tenant_id, batch_id, after.position)
            else:
                back += [(tenant_id, batch_id, model_id, part, attempts, deferrals) for part in after]
        if back:
            _requeue(connection, back)
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


def _store_crash(connection: Connection[TupleRow], tenant_id: int, batch_id: int, position: int) -> None:
    found = connection.execute(POSITION, (tenant_id, batch_id, position)).fetchone()
    if found is None:
        return
    line, custom_id = found
    message = "The engine died each time it ran this request alone."
    body = error_line(line_id(batch_id, line), custom_id, "engine_crash", message)
    values = {"tenant_id": tenant_id, "batch_id": batch_id, "outcome": Outcome.FAILED.value}
    connection.execute(statements.FILL, values | {"lines": [line], "bodies": [body]})
