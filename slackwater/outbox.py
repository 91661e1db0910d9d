"""Events, written in the transaction of the fact: a terminal state and its event are one commit, or neither."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater import ids

BATCH_TYPES: Final = ("batch.completed", "batch.failed", "batch.expired", "batch.cancelled")
RESPONSE_TYPES: Final = ("response.completed", "response.failed", "response.cancelled", "response.incomplete")
EVENT_TYPES: Final = BATCH_TYPES + RESPONSE_TYPES

# Guarantees: one event of a type for a batch, whoever publishes it and however often; its deliveries come in the same transaction, one for
# each endpoint that was subscribed at that moment. A disabled endpoint gets its delivery too: it is offered when it is enabled again.
PUBLISH = """
WITH e AS (
    INSERT INTO event (tenant_id, public_id, type, batch_id, body)
    VALUES (%(tenant_id)s, %(public_id)s, %(type)s, %(batch_id)s, %(body)b)
    ON CONFLICT (tenant_id, batch_id, type) DO NOTHING
    RETURNING tenant_id, id, batch_id, type
)
INSERT INTO delivery (tenant_id, public_id, event_id, endpoint_id)
SELECT e.tenant_id, 'whd_' || replace(gen_random_uuid()::text, '-', ''), e.id, p.id
  FROM e JOIN endpoint p ON p.tenant_id = e.tenant_id AND p.deleted_at IS NULL AND e.type = ANY (p.event_types)
   AND (p.batch_id IS NULL OR p.batch_id = e.batch_id)
"""


def publish(
    connection: Connection[TupleRow], tenant_id: int, batch_id: int, type_: str, data: Mapping[str, Any]
) -> None:
    """Write the event `type_` of a batch and its deliveries; the caller's transaction commits them with the fact.

    `data` is what a subscriber gets: at least `id`; never prompts or outputs.
    """
    public_id = ids.new("evt_")
    connection.execute(
        PUBLISH,
        {
            "tenant_id": tenant_id,
            "public_id": public_id,
            "type": type_,
            "batch_id": batch_id,
            "body": event_body(public_id, type_, int(time.time()), data),
        },
    )
    connection.execute("SELECT pg_notify('slackwater', 'dispatch')")


def event_body(public_id: str, type_: str, created_at: int, data: Mapping[str, Any]) -> bytes:
    """The bytes that are signed and sent on every attempt (contract: WIRE 4.1)."""
    value = {"object": "event", "id": public_id, "type": type_, "created_at": created_at, "data": dict(data)}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()
