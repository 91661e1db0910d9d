"""What became of the events of one endpoint, and asking for one more attempt; in the tenant's own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from sqlalchemy import RowMapping, and_, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import Conflict, NotFound
from slackwater.storage.tables import delivery, delivery_attempt, endpoint, event


class DeliveryState(IntEnum):
    """Where a delivery is in its life, as it is stored."""

    PENDING = 0
    DELIVERED = 1
    EXHAUSTED = 2
    DROPPED = 3


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """One attempt: its number, when it began, how long it took, the status or the error class, and the start of the reply."""

    n: int
    at: datetime
    seconds: float
    http: int | None
    error: str | None
    reply: bytes | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event to one endpoint. `next_at` is meant only while it is pending."""

    id: int
    public_id: str
    event_id: str
    event_type: str
    endpoint_id: str
    state: DeliveryState
    attempts: int
    next_at: datetime
    delivered_at: datetime | None
    created_at: datetime
    log: tuple[AttemptLog, ...] = ()


_COLUMNS = (
    delivery.c.id,
    delivery.c.public_id,
    event.c.public_id.label("event_id"),
    event.c.type.label("event_type"),
    endpoint.c.public_id.label("endpoint_id"),
    delivery.c.state,
    delivery.c.attempts,
    delivery.c.next_at,
    delivery.c.delivered_at,
    delivery.c.created_at,
)
_JOINED = delivery.join(event, and_(event.c.tenant_id == delivery.c.tenant_id, event.c.id == delivery.c.event_id)).join(
    endpoint, and_(endpoint.c.tenant_id == delivery.c.tenant_id, endpoint.c.id == delivery.c.endpoint_id)
)


async def list_page(
    connection: AsyncConnection, *, tenant_id: int, endpoint_id: str, after: str | None = None, limit: int = 20
) -> tuple[list[Delivery], bool]:
    """A page of an endpoint's deliveries with their attempts, newest first, and whether more follow.

    Raises:
        NotFound: `after` names no delivery of this tenant.
    """
    scope = [delivery.c.tenant_id == tenant_id, endpoint.c.public_id == endpoint_id]
    if after is not None:
        scope.append(delivery.c.id < (await _row(connection, tenant_id, after))["id"])
    query = select(*_COLUMNS).select_from(_JOINED).where(*scope).order_by(delivery.c.id.desc()).limit(limit + 1)
    rows = (await connection.execute(query)).mappings().all()
    logs = await _logs(connection, tenant_id, [row["id"] for row in rows[:limit]])
    return [_delivery(row, logs) for row in rows[:limit]], len(rows) > limit


async def retry(connection: AsyncConnection, *, tenant_id: int, public_id: str) -> Delivery:
    """Make a delivery due now, whatever became of it: the same id and the same bytes. Its attempts stay counted.

    One that is in flight at this moment is left alone.

    Raises:
        NotFound: no such delivery for this tenant.
        Conflict: its endpoint is deleted.
    """
    row = await _row(connection, tenant_id, public_id)
    if row["deleted_at"] is not None:
        raise Conflict("The delivery's endpoint is deleted.", code="endpoint_deleted")
    idle = and_(delivery.c.tenant_id == tenant_id, delivery.c.id == row["id"], delivery.c.token.is_(None))
    await connection.execute(update(delivery).where(idle).values(state=DeliveryState.PENDING, next_at=func.now()))
    await connection.execute(text("SELECT pg_notify('slackwater', 'dispatch')"))
    logs = await _logs(connection, tenant_id, [row["id"]])
    return _delivery(await _row(connection, tenant_id, public_id), logs)


async def _row(connection: AsyncConnection, tenant_id: int, public_id: str) -> RowMapping:
    query = select(*_COLUMNS, endpoint.c.deleted_at).select_from(_JOINED)
    scope = (delivery.c.tenant_id == tenant_id, delivery.c.public_id == public_id)
    row = (await connection.execute(query.where(*scope))).mappings().one_or_none()
    if row is None:
        raise NotFound("No such delivery.")
    return row


async def _logs(
    connection: AsyncConnection, tenant_id: int, deliveries: Sequence[int]
) -> Mapping[int, tuple[AttemptLog, ...]]:
    log = delivery_attempt.c
    query = select(delivery_attempt).where(log.tenant_id == tenant_id, log.delivery_id.in_(deliveries))
    found: dict[int, list[AttemptLog]] = {}
    for row in (await connection.execute(query.order_by(log.delivery_id, log.n))).mappings():
        entry = AttemptLog(row["n"], row["at"], row["seconds"], row["http"], row["error"], row["reply"])
        found.setdefault(row["delivery_id"], []).append(entry)
    return {delivery_id: tuple(entries) for delivery_id, entries in found.items()}


def _delivery(row: RowMapping, logs: Mapping[int, tuple[AttemptLog, ...]]) -> Delivery:
    plain = {column.name: row[column.name] for column in _COLUMNS}
    return Delivery(**plain | {"state": DeliveryState(row["state"]), "log": logs.get(row["id"], ())})
