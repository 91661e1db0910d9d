"""One tenant never sees, changes or learns of another's objects."""

from __future__ import annotations

import httpx2
import psycopg
import pytest
from sqlalchemy import text

from slackwater.storage.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker, finish, row_of, run, store
from tests.integration.api.test_batches import BODY

FILE = "file-" + "0" * 31 + "1"
BATCH = "batch_" + "0" * 31 + "1"


def same(reply: httpx2.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    varying = ("x-request-id", "date")
    return reply.status_code, reply.content, sorted((k, v) for k, v in reply.headers.items() if k not in varying)


def test_a_foreign_id_is_as_good_as_a_random_one(api: Api, worker: Worker) -> None:
    mine, theirs = api.client(), api.http(api.other_key)
    file = mine.files.create(file=b"{}\n", purpose="batch")
    batch = mine.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"}
    )
    row = row_of(worker, batch.id)
    run(worker, row, 2)
    store(worker, row, 1, b"{}\n")
    store(worker, row, 2, b"{}\n", outcome=1)
    finish(worker, row, {0: {1: b"{}\n"}, 1: {2: b"{}\n"}})
    done = mine.batches.retrieve(batch.id)

    for foreign in (file.id, done.output_file_id, done.error_file_id):
        for method, path in (("GET", "/v1/files/{}"), ("GET", "/v1/files/{}/content"), ("DELETE", "/v1/files/{}")):
            seen = same(theirs.request(method, path.format(foreign)))
            assert seen == same(theirs.request(method, path.format(FILE)))
            assert seen[0] == 404
        cursor = same(theirs.get(f"/v1/files?after={foreign}"))
        assert cursor == same(theirs.get(f"/v1/files?after={FILE}"))
    for method, path in (("GET", "/v1/batches/{}"), ("POST", "/v1/batches/{}/cancel")):
        seen = same(theirs.request(method, path.format(batch.id)))
        assert seen == same(theirs.request(method, path.format(BATCH)))
        assert seen[0] == 404
    assert same(theirs.get(f"/v1/batches?after={batch.id}")) == same(theirs.get(f"/v1/batches?after={BATCH}"))
    assert theirs.get("/v1/files").json()["data"] == []
    assert theirs.get("/v1/batches").json()["data"] == []
    assert mine.batches.retrieve(batch.id) == done


def test_a_foreign_input_file_is_not_taken(api: Api, worker: Worker) -> None:
    file = api.client().files.create(file=b"{}\n", purpose="batch")

    made = api.http(api.other_key).post("/v1/batches", json=BODY | {"input_file_id": file.id}).json()

    assert worker.execute("SELECT file_id FROM batch WHERE public_id = %s", (made["id"],)).fetchone() == (None,)


async def test_the_net_under_the_queries_holds(api: Api, dsn: str) -> None:
    """Row-level security alone: the same connection, another tenant, no tenant; and a role that is no superuser."""
    api.client().files.create(file=b"{}\n", purpose="batch")
    api.http().post("/v1/batches", json=BODY)
    database = Database(dsn, pool_size=1)
    async with database.admin() as connection:
        tenants = {row.name: row.id for row in (await connection.execute(text("SELECT id, name FROM tenant"))).all()}
    counts = {}
    for name, tenant_id in tenants.items():
        async with database.tenant(tenant_id) as connection:
            role = (
                await connection.execute(
                    text("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
                )
            ).one()
            assert tuple(role) == (False, False)
            query = (
                "SELECT (SELECT count(*) FROM file), (SELECT count(*) FROM file_chunk), (SELECT count(*) FROM batch)"
            )
            counts[name] = tuple((await connection.execute(text(query))).one())
    async with database.engine.begin() as connection:
        await connection.execute(text("SET LOCAL ROLE sw_app"))
        assert (await connection.execute(text("SELECT count(*) FROM file"))).scalar_one() == 0
        setting = await connection.execute(text("SELECT current_setting('app.tenant_id', true)"))
        assert not setting.scalar_one()
    await database.close()

    assert counts == {"alpha": (3, 1, 1), "beta": (0, 0, 0)}


def test_the_login_role_is_no_superuser(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = session_user").fetchone()

    assert row == (False, False)


@pytest.mark.parametrize("table", ["result", "progress", "lease", "output_index", "lane", "price", "instance"])
async def test_the_api_cannot_write_what_is_not_its_own(dsn: str, table: str) -> None:
    database = Database(dsn, pool_size=1)
    try:
        with pytest.raises(Exception, match="permission denied"):
            async with database.tenant(1) as connection:
                await connection.execute(text(f"DELETE FROM {table}"))
    finally:
        await database.close()
