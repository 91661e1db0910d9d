"""Signatures: the published vectors, and receivers that hold the old or the new secret."""

from __future__ import annotations

from datetime import UTC, datetime

import openai
import pytest
from standardwebhooks import Webhook

from slackwater.outbox import EVENT_TYPES, event_body
from slackwater.webhooks.signing import headers, hint, new_secret

VECTORS = [
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
    (
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
        1649367553,
        b'{"email":"test@example.com","username":"test_user"}',
        "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
    ),
]


@pytest.mark.parametrize(("secret", "event_id", "at", "body", "signature"), VECTORS)
def test_the_published_vectors(secret: str, event_id: str, at: int, body: bytes, signature: str) -> None:
    sent = headers(event_id, body, [secret], datetime.fromtimestamp(at, UTC))

    assert sent["webhook-signature"] == signature
    assert (sent["webhook-id"], sent["webhook-timestamp"]) == (event_id, str(at))


@pytest.mark.parametrize("type_", EVENT_TYPES)
def test_while_two_secrets_are_live_either_verifies(type_: str) -> None:
    old, new = new_secret(), new_secret()
    body = event_body("evt_1", type_, 1, {"id": "batch_1", "request_counts": {"total": 3}})
    sent = headers("evt_1", body, [new, old], datetime.now(UTC))

    client = openai.OpenAI(api_key="none")
    for secret in (old, new):
        Webhook(secret).verify(body, sent)
        event = client.webhooks.unwrap(body, sent, secret=secret)
        assert (event.type, event.data.id) == (type_, "batch_1")  # type: ignore[union-attr]
    client.close()


def test_a_hint_shows_four_characters() -> None:
    secret = new_secret()

    assert len(secret) == len("whsec_") + 44
    assert hint(secret) == "whsec_..." + secret[-4:]
