"""What a batch's end is to those who wait for it: the event of a batch, or that of the response it stands for. In the transaction of the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater import outbox
from slackwater.lifecycle import BatchState
from slackwater.wire import response
from slackwater.wire.batch import Counts, event_data

# Guarantees: one that was deleted while it ran stays deleted from then on.
KEEP: Final = """
UPDATE batch SET gone_at = coalesce(gone_at, now() + coalesce(output_expires_after_seconds, 2592000) * interval '1 second')
 WHERE tenant_id = %(tenant_id)s AND id = %(id)s
"""
LINE: Final = """
SELECT body FROM result WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s ORDER BY line LIMIT 1
"""


def tell(
    connection: Connection[TupleRow],
    batch: Mapping[str, Any],
    state: BatchState,
    counts: Counts,
    errors: Mapping[str, Any] | None = None,
) -> None:
    """Write the event of a batch that ends as `state`; `errors` are those of an input that was refused."""
    if batch["response"] is None:
        data = event_data(batch, state, counts)
        outbox.publish(connection, batch["tenant_id"], batch["id"], f"batch.{state.word}", data)
        return
    connection.execute(KEEP, batch)
    line = connection.execute(LINE, batch).fetchone() if state is BatchState.COMPLETED else None
    ended = response.ending(state, errors, line[0] if line else None)
    assert ended is not None
    data = response.event_data(batch, ended, counts)
    outbox.publish(connection, batch["tenant_id"], batch["id"], f"response.{ended.status}", data)
