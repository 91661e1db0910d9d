"""What a sender holds: claimed deliveries, and the outcomes it writes back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from scheduler.dispatch import statements
from slackwater.webhooks.deliveries import DeliveryState
from slackwater.webhooks.schedule import Again, Decision, Delivered, decide
from slackwater.webhooks.sender import Attempt

# Longer than an attempt may take at the default timeout; `lease_seconds` follows a longer one.
LEASE_SECONDS: Final = 60.0
LEASE_MARGIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Claim:
    """One delivery in this sender's hands. `url` and `secrets` are sealed; `attempts` counts those before this one."""

    tenant_id: int
    id: int
    token: UUID
    attempts: int
    event_id: str
    body: bytes
    endpoint_id: int
    endpoint_public_id: str
    url: bytes
    secrets: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the attempt under one claim ended, and what follows from it."""

    claim: Claim
    started_at: datetime
    attempt: Attempt
    decision: Decision


@dataclass(frozen=True, slots=True)
class Limits:
    """How many deliveries are in flight at once: of this sender, for one tenant, for one endpoint."""

    in_all: int = 200
    per_tenant: int = 100
    per_endpoint: int = 10


def outcome_of(claim: Claim, started_at: datetime, attempt: Attempt, rng: random.Random) -> Outcome:
    return Outcome(claim, started_at, attempt, decide(attempt.reply, claim.attempts + 1, rng))


def lease_seconds(timeout_seconds: float) -> float:
    """The lease outlives the longest attempt, so that no second sender starts while the first may still be sending."""
    return max(LEASE_SECONDS, timeout_seconds + LEASE_MARGIN_SECONDS)


async def claim(connection: AsyncConnection[TupleRow], most: int, limits: Limits, lease: float) -> list[Claim]:
    """Take up to `most` due deliveries for `lease` seconds."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(
            statements.CLAIM,
            {"most": most, "per_endpoint": limits.per_endpoint, "per_tenant": limits.per_tenant, "lease": lease},
        )
        return [Claim(*row) for row in await cursor.fetchall()]


async def record(connection: AsyncConnection[TupleRow], outcomes: Sequence[Outcome]) -> int:
    """Write all outcomes in one transaction. Returns how many counted: the others' leases had passed to another sender."""
    async with connection.transaction():
        disabling = [outcome for outcome in outcomes if outcome.decision.disable is not None]
        # In one order, so that two senders never wait for each other.
        for outcome in sorted(disabling, key=lambda o: (o.claim.tenant_id, o.claim.endpoint_id)):
            await connection.execute(statements.DISABLE, _disabling(outcome))
        return (await connection.execute(statements.RECORD, _columns(outcomes))).rowcount


async def hand_back(connection: AsyncConnection[TupleRow], claims: Sequence[Claim]) -> None:
    """Make claims due at once that were not sent to the end."""
    await connection.execute(
        statements.HAND_BACK,
        {
            "tenant_ids": [c.tenant_id for c in claims],
            "ids": [c.id for c in claims],
            "tokens": [c.token for c in claims],
        },
    )


async def drop(connection: AsyncConnection[TupleRow]) -> int:
    """Drop what waits for deleted endpoints. Returns how many, at most 1,000."""
    return (await connection.execute(statements.DROP)).rowcount


def _columns(outcomes: Sequence[Outcome]) -> dict[str, list[Any]]:
    return {
        "tenant_ids": [o.claim.tenant_id for o in outcomes],
        "ids": [o.claim.id for o in outcomes],
        "tokens": [o.claim.token for o in outcomes],
        "states": [_state(o.decision).value for o in outcomes],
        "waits": [_wait(o.decision) for o in outcomes],
        "started": [o.started_at for o in outcomes],
        "seconds": [o.attempt.seconds for o in outcomes],
        "https": [o.attempt.reply.http for o in outcomes],
        "errors": [o.attempt.reply.error for o in outcomes],
        "replies": [o.attempt.body for o in outcomes],
    }


def _disabling(outcome: Outcome) -> dict[str, Any]:
    claim = outcome.claim
    return {"tenant_id": claim.tenant_id, "endpoint_id": claim.endpoint_id, "reason": outcome.decision.disable}


def _state(decision: Decision) -> DeliveryState:
    if isinstance(decision.delivery, Delivered):
        return DeliveryState.DELIVERED
    return DeliveryState.PENDING if isinstance(decision.delivery, Again) else DeliveryState.EXHAUSTED


def _wait(decision: Decision) -> float:
    return decision.delivery.seconds if isinstance(decision.delivery, Again) else 0.0
