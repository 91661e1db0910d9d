"""A create that is sent again because its reply was lost, by clients that send no idempotency key."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

from tests.integration.api.conftest import Api, eventually
from tests.integration.api.rows import Worker
from tests.integration.api.test_batches import BODY

RESEND = {"x-stainless-retry-count": "1"}
PENDING = "SELECT count(*) FROM batch WHERE idempotency_key IS NOT NULL"
LOCK = "LOCK TABLE batch IN SHARE ROW EXCLUSIVE MODE"


def lose_a_reply(api: Api, worker: Worker) -> None:
    """Send a create, and be gone before it is answered: a lock holds it up meanwhile."""
    body = json.dumps(BODY).encode()
    address = urlsplit(api.url)
    head = (
        f"POST /v1/batches HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {api.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'batch'::regclass"
    with socket.create_connection((address.hostname, address.port)) as line, worker.transaction():
        worker.execute(LOCK)
        line.sendall(head.encode() + body)
        eventually(lambda: worker.execute(waiting).fetchone() == (1,))
        line.close()
        api.http().get("/healthz")
    eventually(lambda: worker.execute("SELECT count(*) FROM batch").fetchone() == (1,))


def test_a_resend_finds_the_create_whose_reply_was_lost(api: Api, worker: Worker) -> None:
    lose_a_reply(api, worker)

    again = api.http().post("/v1/batches", json=BODY, headers=RESEND)

    assert again.headers["idempotent-replayed"] == "true"
    assert worker.execute("SELECT array_agg(public_id) FROM batch").fetchone() == ([again.json()["id"]],)
    eventually(lambda: worker.execute(PENDING).fetchone() == (0,))
    later = api.http().post("/v1/batches", json=BODY, headers=RESEND)
    assert later.json()["id"] != again.json()["id"]


def test_a_first_send_is_always_a_batch_of_its_own(api: Api, worker: Worker) -> None:
    lose_a_reply(api, worker)

    first = api.http().post("/v1/batches", json=BODY)

    assert "idempotent-replayed" not in first.headers
    assert worker.execute("SELECT count(*) FROM batch").fetchone() == (2,)


def test_an_answered_create_is_not_found_by_a_resend(api: Api, worker: Worker) -> None:
    made = [api.http().post("/v1/batches", json=BODY) for _ in range(2)]
    eventually(lambda: worker.execute(PENDING).fetchone() == (0,))

    again = api.http().post("/v1/batches", json=BODY, headers=RESEND)

    assert len({reply.json()["id"] for reply in (*made, again)}) == 3


def test_a_resend_is_forgotten_after_ten_minutes_and_by_other_keys(api: Api, worker: Worker) -> None:
    lose_a_reply(api, worker)
    other = api.http(api.admin_key).post("/v1/batches", json=BODY, headers=RESEND)
    worker.execute("UPDATE batch SET created_at = created_at - interval '11 min'")

    late = api.http().post("/v1/batches", json=BODY, headers=RESEND)

    assert "idempotent-replayed" not in {*other.headers, *late.headers}
    assert worker.execute("SELECT count(*) FROM batch").fetchone() == (3,)
