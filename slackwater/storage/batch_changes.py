"""What a tenant may still change about a batch that waits: its priority and its window."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import Conflict, InvalidRequest, NotFound
from slackwater.lifecycle import BatchState

WAITING: Final = (BatchState.VALIDATING, BatchState.IN_PROGRESS)
# Guarantees: a change, a cancel and a duty that ends the batch come one after the other on its row.
LOCK = text("SELECT id, state FROM batch WHERE tenant_id = :tenant_id AND public_id = :public_id FOR UPDATE")
# The window counts from the creation. No row: its end has passed.
CHANGE = text("""
UPDATE batch SET priority = coalesce(:priority, priority), completion_window = coalesce(:completion_window, completion_window),
       expires_at = coalesce(created_at + CAST(:window AS interval), expires_at)
 WHERE tenant_id = :tenant_id AND id = :id AND (CAST(:window AS interval) IS NULL OR created_at + CAST(:window AS interval) > now())
RETURNING id
""")
# A lane belongs to a model, a priority and a quarter of an hour of deadline; in the order of models, so that two changes never deadlock.
LANES = text("""
WITH made AS (
    INSERT INTO lane AS l (tenant_id, model_id, priority, deadline_at)
    SELECT b.tenant_id, m.model_id, b.priority, date_bin('15 minutes', b.expires_at, 'epoch')
      FROM batch b JOIN batch_model m ON m.tenant_id = b.tenant_id AND m.batch_id = b.id
     WHERE b.tenant_id = :tenant_id AND b.id = :id
     ORDER BY m.model_id
    ON CONFLICT (tenant_id, model_id, priority, deadline_at) DO UPDATE SET priority = l.priority
    RETURNING id, model_id)
UPDATE batch_model m SET lane_id = made.id FROM made
 WHERE m.tenant_id = :tenant_id AND m.batch_id = :id AND m.model_id = made.model_id
""")


async def change(
    connection: AsyncConnection,
    tenant_id: int,
    public_id: str,
    *,
    priority: int | None,
    completion_window: str | None,
    window: timedelta | None,
) -> None:
    """Change a batch that has not ended and is not ending; None leaves a value as it is.

    Raises:
        NotFound: the tenant has no such batch.
        Conflict: it has ended, or is about to.
        InvalidRequest: the new window has ended already.
    """
    where = {"tenant_id": tenant_id, "public_id": public_id}
    row = (await connection.execute(LOCK, where)).first()
    if row is None:
        raise NotFound("No batch found with that id.")
    state = BatchState(row.state)
    if state not in WAITING:
        raise Conflict(f"Cannot change a batch with status '{state.word}'.")
    values = {
        "tenant_id": tenant_id,
        "id": row.id,
        "priority": priority,
        "completion_window": completion_window,
        "window": window,
    }
    if (await connection.execute(CHANGE, values)).first() is None:
        raise InvalidRequest(
            "This window, counted from the creation of the batch, has ended already.",
            code="invalid_value",
            param="completion_window",
        )
    await connection.execute(LANES, {"tenant_id": tenant_id, "id": row.id})
