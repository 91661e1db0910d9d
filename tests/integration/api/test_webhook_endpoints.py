"""Endpoints as the real client manages them; another tenant sees none; a delivery can be followed and asked for again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai
import psycopg
import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook

from slackwater.outbox import EVENT_TYPES, publish
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from tests.integration.api.conftest import MASTER_KEY, Api

URL = "https://example.com/hook"
RANDOM = "we_" + "0" * 32


@pytest.fixture
def api_settings(dsn: str) -> Settings:
    return Settings(
        database_url=SecretStr(dsn),
        master_key=SecretStr(MASTER_KEY),
        port=0,
        webhook_allow=("127.0.0.1/32",),
        webhook_allow_http=True,
        webhook_timeout_seconds=5.0,
    )


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append(({k.lower(): v for k, v in self.headers.items()}, body))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.received = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_endpoint_lives_as_the_client_expects(api: Api) -> None:
    hooks = api.client().webhooks
    made = hooks.create(name="main", url=URL, event_types=["batch.completed", "batch.failed"])
    assert made.signing_secret.startswith("whsec_")
    assert made.signing_secret_hint == "whsec_..." + made.signing_secret[-4:]

    assert hooks.retrieve(made.id).model_dump() == {
        key: value for key, value in made.model_dump().items() if key != "signing_secret"
    }
    changed = hooks.update(made.id, name="renamed", event_types=["batch.expired"])
    assert (changed.name, changed.event_types, changed.url) == ("renamed", ["batch.expired"], URL)
    second = hooks.create(name="", url=URL, event_types=["batch.cancelled"])
    assert [one.id for one in hooks.list(limit=1)] == [second.id, made.id]
    assert hooks.event_types.list().data == list(EVENT_TYPES)
    gone = hooks.delete(made.id)
    assert (gone.deleted, gone.object) == (True, "webhook_endpoint.deleted")
    with pytest.raises(openai.NotFoundError):
        hooks.retrieve(made.id)


def test_a_secret_rotates_at_once_or_with_an_overlap(api: Api, dsn: str) -> None:
    hooks = api.client().webhooks
    made = hooks.create(name="main", url=URL, event_types=["batch.completed"])
    kept = hooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    assert kept.signing_secret != made.signing_secret
    assert _live(dsn) == 2
    hooks.rotate_secret(made.id)
    assert _live(dsn) == 1
    for _ in range(9):
        hooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    with pytest.raises(openai.ConflictError) as refusal:
        api.client(max_retries=0).webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    assert refusal.value.code == "too_many_secrets"


def _live(dsn: str) -> int:
    with psycopg.connect(dsn) as rows:
        row = rows.execute("SELECT count(*) FROM secret WHERE expires_at IS NULL OR expires_at > now()").fetchone()
    return int(row[0]) if row else 0


def test_a_test_event_is_signed_and_arrives(api: Api, receiver: HTTPServer) -> None:
    hooks = api.client().webhooks
    url = f"http://127.0.0.1:{receiver.server_address[1]}/hook"
    made = hooks.create(name="main", url=url, event_types=["batch.completed"])
    result = hooks.test(made.id, event_type="batch.failed")

    assert (result.status_code, result.success, result.webhook_endpoint_id) == (204, True, made.id)
    ((headers, body),) = receiver.received  # type: ignore[attr-defined]
    assert Webhook(made.signing_secret).verify(body, headers)["type"] == "batch.failed"


def test_a_delivery_can_be_followed_and_asked_for_again(api: Api, dsn: str) -> None:
    made = api.client().webhooks.create(name="main", url=URL, event_types=["batch.completed"])
    with connect(dsn) as duty, psycopg.connect(dsn, autocommit=True) as rows:
        (tenant_id,) = rows.execute("SELECT tenant_id FROM endpoint").fetchone() or (0,)
        publish(duty, tenant_id, 1, "batch.completed", {"id": "batch_1"})
        rows.execute("UPDATE delivery SET state = 2, attempts = 1")
        rows.execute(
            "INSERT INTO delivery_attempt (tenant_id, delivery_id, n, seconds, http, error, reply) "
            "SELECT tenant_id, id, 1, 0.5, 500, 'http_5xx', 'no' FROM delivery"
        )
    http = api.http()
    (shown,) = http.get(f"/v1/webhook_endpoints/{made.id}/deliveries").json()["data"]
    assert (shown["status"], shown["event_type"], shown["next_attempt_at"]) == ("exhausted", "batch.completed", None)
    (attempt,) = shown["attempts"]
    assert (attempt["status_code"], attempt["error"], attempt["response_body"]) == (500, "http_5xx", "no")

    asked = http.post(f"/v1/deliveries/{shown['id']}/retry").json()
    assert (asked["status"], asked["attempt_count"]) == ("pending", 1)
    stranger = api.http(api.other_key)
    assert stranger.post(f"/v1/deliveries/{shown['id']}/retry").status_code == 404


def test_a_disabled_endpoint_says_so_and_can_be_enabled(api: Api) -> None:
    http, made = api.http(), api.client().webhooks.create(name="main", url=URL, event_types=["batch.completed"])
    off = http.post(f"/v1/webhook_endpoints/{made.id}", json={"status": "disabled"}).json()
    assert (off["status"], off["disabled_reason"]) == ("disabled", "disabled_by_caller")
    on = http.post(f"/v1/webhook_endpoints/{made.id}", json={"status": "enabled"}).json()
    assert (on["status"], on["disabled_at"], on["disabled_reason"]) == ("enabled", None, None)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x", "url": "https://169.254.169.254/", "event_types": ["batch.completed"]}, "url"),
        ({"name": "x", "url": "https://u:p@example.com/", "event_types": ["batch.completed"]}, "url"),
        ({"name": "x", "url": URL, "event_types": ["response.expired"]}, "event_types"),
        ({"name": "x", "url": URL, "event_types": []}, "event_types"),
        ({"name": "a\nb", "url": URL, "event_types": ["batch.completed"]}, "name"),
        ({"name": "x", "event_types": ["batch.completed"]}, "url"),
    ],
)
def test_what_may_not_be_an_endpoint_is_refused(api: Api, body: dict[str, object], param: str) -> None:
    reply = api.http().post("/v1/webhook_endpoints", json=body)

    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("POST", "", {"name": "x"}),
        ("DELETE", "", None),
        ("POST", "/rotate_secret", {}),
        ("POST", "/test", {"event_type": "batch.failed"}),
        ("GET", "/deliveries", None),
    ],
)
def test_another_tenants_endpoint_looks_like_none(api: Api, method: str, path: str, body: object) -> None:
    made = api.client().webhooks.create(name="main", url=URL, event_types=["batch.completed"])
    stranger = api.http(api.other_key)
    replies = [
        stranger.request(method, f"/v1/webhook_endpoints/{public_id}{path}", json=body)
        for public_id in (made.id, RANDOM, "we_x%00")
    ]

    assert {reply.status_code for reply in replies} == {404}
    assert len({reply.content for reply in replies}) == 1
    assert stranger.get("/v1/webhook_endpoints").json()["data"] == []
    assert stranger.get("/v1/webhook_endpoints", params={"after": made.id}).status_code == 400


def test_neither_secret_nor_url_is_readable_at_rest(api: Api, dsn: str) -> None:
    made = api.client().webhooks.create(name="main", url=URL + "?token=canary", event_types=["batch.completed"])
    with psycopg.connect(dsn) as rows:
        stored = rows.execute("SELECT url, sealed FROM endpoint, secret").fetchall()

    assert stored
    for value in stored[0]:
        assert b"canary" not in value
        assert made.signing_secret.encode() not in value
