"""Secrets and signatures of Standard Webhooks 1.0 (v1, HMAC-SHA256), and what seals them."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from standardwebhooks import Webhook

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
USER_AGENT: Final = "Slackwater/1.0 (webhooks)"


def new_secret() -> str:
    """`whsec_` and 32 random bytes in base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def hint(secret: str) -> str:
    """What may be shown of a secret later."""
    return f"{PREFIX}...{secret[-4:]}"


def secret_context(tenant_id: int, endpoint_id: str) -> str:
    """The place a secret is sealed for."""
    return f"secret|{tenant_id}|{endpoint_id}"


def url_context(tenant_id: int, endpoint_id: str) -> str:
    """The place a target URL is sealed for."""
    return f"url|{tenant_id}|{endpoint_id}"


def headers(event_id: str, body: bytes, signing_secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """The headers of one attempt. `now` is the attempt's time: receivers refuse what is older than five minutes.

    Every live secret signs, so that a receiver may hold the old or the new one while they overlap.
    """
    at = now.astimezone(UTC)
    text = body.decode()
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(event_id, at, text) for secret in signing_secrets),
    }
