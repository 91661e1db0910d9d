"""What webhook routes take and show (contract: WIRE 4.1; `status`, `grace_seconds` and the deliveries are ours)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from slackwater.webhooks.deliveries import AttemptLog, Delivery
from slackwater.webhooks.endpoints import Endpoint
from slackwater.webhooks.signing_secrets import MAX_GRACE_SECONDS
from slackwater.wire.batch_request import Body, Clean

EventTypes = Annotated[list[Clean], Field(min_length=1, max_length=64)]
OLD_SECRET_SECONDS = 86_400


class CreateEndpoint(Body):
    name: Clean
    url: Clean
    event_types: EventTypes


class ChangeEndpoint(Body):
    name: Clean | None = None
    url: Clean | None = None
    event_types: EventTypes | None = None
    status: Literal["enabled", "disabled"] | None = None

    @property
    def enabled(self) -> bool | None:
        return None if self.status is None else self.status == "enabled"


class RotateSecret(Body):
    keep_old_secret_active_for_24_hours: bool = False
    grace_seconds: int | None = Field(None, ge=0, le=MAX_GRACE_SECONDS)

    @property
    def grace(self) -> int:
        """Seconds for which the old secrets go on signing."""
        if self.grace_seconds is not None:
            return self.grace_seconds
        return OLD_SECRET_SECONDS if self.keep_old_secret_active_for_24_hours else 0


class TestEndpoint(Body):
    event_type: Clean


def endpoint_object(endpoint: Endpoint, signing_secret: str | None = None) -> dict[str, Any]:
    shown = {
        "id": endpoint.public_id,
        "object": "webhook_endpoint",
        "created_at": _seconds(endpoint.created_at),
        "updated_at": _seconds(endpoint.updated_at),
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": list(endpoint.event_types),
        "signing_secret_hint": endpoint.hint,
        "status": "enabled" if endpoint.disabled_at is None else "disabled",
        "disabled_at": _seconds(endpoint.disabled_at),
        "disabled_reason": endpoint.disabled_reason,
    }
    return shown if signing_secret is None else shown | {"signing_secret": signing_secret}


def delivery_object(delivery: Delivery) -> dict[str, Any]:
    state = delivery.state.name.lower()
    return {
        "id": delivery.public_id,
        "object": "webhook_delivery",
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "webhook_endpoint_id": delivery.endpoint_id,
        "status": state,
        "attempt_count": delivery.attempts,
        "created_at": _seconds(delivery.created_at),
        "next_attempt_at": _seconds(delivery.next_at) if state == "pending" else None,
        "delivered_at": _seconds(delivery.delivered_at),
        "attempts": [_attempt_object(attempt) for attempt in delivery.log],
    }


def _attempt_object(attempt: AttemptLog) -> dict[str, Any]:
    return {
        "attempt": attempt.n,
        "started_at": _seconds(attempt.at),
        "duration_seconds": round(attempt.seconds, 3),
        "status_code": attempt.http,
        "error": attempt.error,
        "response_body": None if attempt.reply is None else attempt.reply.decode("utf-8", "replace"),
    }


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
