"""Keys: who gets in, who does not, and how fast a revocation works."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from api.auth import CACHE_SECONDS, Gate
from slackwater.errors import Unauthenticated
from slackwater.storage.database import Database
from slackwater.tenancy import keys, tenants
from slackwater.tenancy.key_format import mint
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker

NOW = datetime.now(UTC)
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)


def refusal(reply: httpx2.Response) -> tuple[int, bytes, dict[str, str]]:
    varying = ("x-request-id", "date")
    return reply.status_code, reply.content, {k: v for k, v in reply.headers.items() if k not in varying}


def a_key(api: Api, **options: Any) -> str:
    text: str = api.admin(lambda connection: keys.create(connection, "alpha", **options)).text
    return text


def test_all_refusals_look_alike(api: Api) -> None:
    revoked = a_key(api)
    api.admin(lambda connection: keys.revoke(connection, revoked.split("_")[1]))
    wrong_checksum = api.key[:-1] + ("0" if api.key[-1] != "0" else "1")
    same_public_id = api.key.split("_")[0] + "_" + api.key.split("_")[1]
    headers = [
        {},
        {"authorization": ""},
        {"authorization": f"Basic {api.key}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer SECRET"},
        {"authorization": f"Bearer {wrong_checksum}"},
        {"authorization": f"Bearer {mint().text}"},
        {"authorization": f"Bearer {same_public_id}_{mint().text.split('_', 2)[2]}"},
        {"authorization": f"Bearer {revoked}"},
        {"authorization": f"Bearer {a_key(api, expires_at=EARLIER)}"},
        {"authorization": f"Bearer {a_key(api, not_before=LATER)}"},
    ]

    replies = [api.http("").get("/v1/batches", headers=header) for header in headers]

    first = refusal(replies[0])
    assert first[0] == 401
    assert replies[0].json()["error"]["code"] == "invalid_api_key"
    assert [refusal(reply) for reply in replies] == [first] * len(headers)


def test_a_key_within_its_time_is_taken(api: Api) -> None:
    key = a_key(api, not_before=EARLIER, expires_at=LATER)

    assert api.http(key).get("/v1/batches").status_code == 200


SCOPED = [
    ("files:read", "GET", "/v1/files"),
    ("files:read", "GET", "/v1/files/x"),
    ("files:read", "GET", "/v1/files/x/content"),
    ("files:write", "POST", "/v1/files"),
    ("files:write", "DELETE", "/v1/files/x"),
    ("batches:read", "GET", "/v1/batches"),
    ("batches:read", "GET", "/v1/batches/x"),
    ("batches:write", "POST", "/v1/batches"),
    ("batches:write", "POST", "/v1/batches/x/cancel"),
    ("models:read", "GET", "/v1/models"),
    ("models:read", "GET", "/v1/models/x"),
    ("models:read", "GET", "/v1/instances"),
    ("admin", "GET", "/v1/admin/tenants"),
    ("admin", "POST", "/v1/admin/instances"),
]


def test_a_missing_scope_is_named(api: Api, subtests: pytest.Subtests) -> None:
    for scope, method, path in SCOPED:
        with subtests.test(f"{method} {path}"):
            others = [other for other in keys.CLIENT_SCOPES if other != scope]

            reply = api.http(a_key(api, scopes=others)).request(method, path)

            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "insufficient_scope")
            assert f"'{scope}'" in reply.json()["error"]["message"]
            assert api.http(a_key(api, scopes=[scope])).request(method, path).status_code != 403


async def test_a_revocation_works_within_a_second(api: Api, dsn: str) -> None:
    """By a clock of the test's own: a key is taken from the cache up to 0.9 s after it was looked up, and no longer."""
    now = [100.0]
    database = Database(dsn, pool_size=1)
    gate = Gate(database, clock=lambda: now[0])
    header = f"Bearer {api.key}"
    await gate.principal(header)
    async with database.admin() as connection:
        await keys.revoke(connection, api.key.split("_")[1])

    now[0] += CACHE_SECONDS - 0.01
    assert (await gate.principal(header)).key == api.key.split("_")[1]
    now[0] += 0.02
    with pytest.raises(Unauthenticated):
        await gate.principal(header)
    await database.close()
    assert CACHE_SECONDS <= 1


async def test_a_suspended_tenant_is_refused_and_taken_again(api: Api, dsn: str) -> None:
    now = [100.0]
    database = Database(dsn, pool_size=1)
    gate = Gate(database, clock=lambda: now[0])
    for suspended in (True, False):
        async with database.admin() as connection:
            await tenants.suspend(connection, "alpha", suspended=suspended)
        now[0] += 1
        if suspended:
            with pytest.raises(Unauthenticated):
                await gate.principal(f"Bearer {api.key}")
    assert (await gate.principal(f"Bearer {api.key}")).key == api.key.split("_")[1]
    await database.close()


def test_use_is_noted_once_a_minute(api: Api, worker: Worker) -> None:
    query = "SELECT last_used_at FROM api_key WHERE public_id = %s"
    public_id = api.key.split("_")[1]
    api.http().get("/v1/batches")
    first = worker.execute(query, (public_id,)).fetchone()
    api.http().get("/v1/batches")

    assert first is not None
    assert first[0] is not None
    assert worker.execute(query, (public_id,)).fetchone() == first


def test_the_database_holds_no_key(api: Api) -> None:
    with psycopg.connect(api.dsn) as connection:
        rows = connection.execute("SELECT api_key::text FROM api_key").fetchall()

    assert len(rows) == 3
    assert not any(part in row[0] for row in rows for part in (api.key, api.key.split("_")[2]))
