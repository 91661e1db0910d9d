"""A create that a client sends again makes nothing new, with a key or without."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties import purge
from slackwater.settings import Settings
from slackwater.storage import migrate
from tests.integration.api.conftest import Api
from tests.integration.api.process import api_process
from tests.integration.api.rows import Worker
from tests.integration.api.test_batches import BODY
from tests.waiting import until

RESENT = {"x-stainless-retry-count": "1"}


def batches(worker: Worker) -> int:
    row = worker.execute("SELECT count(*) FROM batch").fetchone()
    assert row is not None
    return int(row[0])


def unreplied(worker: Worker) -> int:
    row = worker.execute("SELECT count(*) FROM idempotency WHERE replied_at IS NULL").fetchone()
    assert row is not None
    return int(row[0])


def break_off(url: str, key: str, body: dict[str, Any], dsn: str) -> None:
    """Send a create, and go away while the server waits for a lock: its reply is for nobody."""
    payload = json.dumps(body).encode()
    place = urlsplit(url)
    head = (
        f"POST /v1/batches HTTP/1.1\r\nhost: {place.netloc}\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    with psycopg.connect(dsn) as blocker:
        blocker.execute("LOCK TABLE batch IN SHARE MODE")
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall(head.encode() + payload)
            until(lambda: _waits(blocker))


def _waits(connection: Connection[TupleRow]) -> bool:
    row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    return row is not None and row[0] > 0


def test_a_resend_of_what_was_not_answered_is_the_same_create(api: Api, worker: Worker) -> None:
    break_off(api.url, api.key, BODY, api.dsn)
    until(lambda: batches(worker) == 1)
    http = api.http()

    again = http.post("/v1/batches", json=dict(reversed(BODY.items())), headers=RESENT)

    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert batches(worker) == 1
    until(lambda: unreplied(worker) == 0)
    later = http.post("/v1/batches", json=BODY, headers=RESENT)
    assert "idempotent-replayed" not in later.headers
    assert batches(worker) == 2


def test_a_lost_secret_of_a_webhook_is_shown_to_the_resend(api: Api, worker: Worker) -> None:
    body = BODY | {"webhook": {"url": "https://example.com/hook"}}
    break_off(api.url, api.key, body, api.dsn)
    until(lambda: batches(worker) == 1)

    again = api.http().post("/v1/batches", json=body, headers=RESENT)

    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["webhook"]["signing_secret"].startswith("whsec_")
    assert worker.execute("SELECT public_id FROM endpoint").fetchall() == [(again.json()["webhook"]["id"],)]


@pytest.mark.parametrize("change", ["an answered one", "another body", "another caller", "too late", "first send"])
def test_what_is_not_the_same_create_makes_a_batch(api: Api, worker: Worker, change: str) -> None:
    if change == "an answered one":
        api.http().post("/v1/batches", json=BODY)
        until(lambda: batches(worker) == 1 and unreplied(worker) == 0)
    else:
        break_off(api.url, api.key, BODY, api.dsn)
        until(lambda: batches(worker) == 1)
    if change == "too late":
        with psycopg.connect(api.dsn, autocommit=True) as owner:
            owner.execute("UPDATE idempotency SET created_at = created_at - interval '11 minutes'")
    http = api.http(api.admin_key if change == "another caller" else None)
    body = BODY | {"priority": 1} if change == "another body" else BODY

    reply = http.post("/v1/batches", json=body, headers={} if change == "first send" else RESENT)

    assert "idempotent-replayed" not in reply.headers
    assert batches(worker) == 2


def test_fifty_resends_at_once_are_one(api: Api, worker: Worker) -> None:
    break_off(api.url, api.key, BODY, api.dsn)
    until(lambda: batches(worker) == 1)
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute("REVOKE UPDATE ON idempotency FROM sw_app; REVOKE UPDATE (replied_at) ON idempotency FROM sw_app")
    http = api.http(limits=httpx2.Limits(max_connections=50))

    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(lambda _: http.post("/v1/batches", json=BODY, headers=RESENT), range(50)))

    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert batches(worker) == 1


class Failover(httpx2.HTTPTransport):
    """Sends the first attempt to one port and all others to the next."""

    def __init__(self, *ports: int | None) -> None:
        super().__init__()
        self.ports = list(ports)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        port = self.ports.pop(0) if len(self.ports) > 1 else self.ports[0]
        request.url = request.url.copy_with(port=port)
        return super().handle_request(request)


def test_a_server_killed_before_its_reply_leaves_one_batch(api: Api, worker: Worker) -> None:
    """The real client on its own: it sends again, and gets the batch that the dead server had made."""
    with psycopg.connect(api.dsn) as blocker, api_process(api.dsn) as first, ThreadPoolExecutor(1) as pool:
        with psycopg.connect(api.dsn, autocommit=True) as owner:
            owner.execute(
                "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'"
            )
            owner.execute(
                "CREATE CONSTRAINT TRIGGER pause AFTER INSERT ON batch DEFERRABLE INITIALLY DEFERRED"
                " FOR EACH ROW EXECUTE FUNCTION pause()"
            )
        blocker.execute("SELECT pg_advisory_xact_lock(1)")
        transport = Failover(urlsplit(first.url).port, urlsplit(api.url).port)
        client = api.client(http_client=openai.DefaultHttpxClient(transport=transport))
        made = pool.submit(lambda: client.batches.with_raw_response.create(**BODY))
        until(lambda: _waits(blocker))

        first.process.kill()
        blocker.rollback()

        reply = made.result(60)
    assert reply.headers["idempotent-replayed"] == "true"
    assert worker.execute("SELECT public_id FROM batch").fetchall() == [(reply.parse().id,)]


def test_keys_are_kept_a_day_and_then_purged(dsn: str, api: Api, worker: Worker) -> None:
    headers = {"idempotency-key": "k-1"}
    first = api.http().post("/v1/batches", json=BODY, headers=headers).json()
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("UPDATE idempotency SET created_at = now() - interval '25 hours'")
        purge.step(worker, Settings())
        assert api.http().post("/v1/batches", json=BODY, headers=headers).json()["id"] == first["id"]
        owner.execute("UPDATE idempotency SET created_at = now() - interval '49 hours'")

    purge.step(worker, Settings())

    assert worker.execute("SELECT count(*) FROM idempotency").fetchone() == (0,)
    assert api.http().post("/v1/batches", json=BODY, headers=headers).json()["id"] != first["id"]


def test_the_schema_is_what_the_tables_say_and_goes_back(dsn: str) -> None:
    assert migrate.drift(dsn) == []
    assert migrate.downgrade(dsn, "pre_0001") == "pre_0001"
    assert migrate.upgrade(dsn) == migrate.newest()
    assert migrate.drift(dsn) == []
