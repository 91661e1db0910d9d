"""What is purged while somebody reads it never looks like all there was, and what goes while it is used is told as gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties import finalise, settle
from slackwater.errors import Gone
from slackwater.lifecycle import BatchState, Outcome, Side
from slackwater.settings import Settings
from slackwater.storage import batch_lines, outputs
from slackwater.storage.database import Database
from slackwater.webhooks import signing_secrets
from slackwater.wire.ranges import Span
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker, row_of, store
from tests.integration.api.test_output_order import a_batch
from tests.integration.api.test_output_order import stored as stored_at_random
from tests.integration.api.work import plan_all
from tests.waiting import until

LINES = 600


@pytest.fixture
def owner(api: Api) -> Iterator[Connection[TupleRow]]:
    with psycopg.connect(api.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def database(api: Api) -> AsyncIterator[Database]:
    database = Database(api.dsn, pool_size=1)
    yield database
    await database.close()


def a_final_batch(api: Api, worker: Worker, order: str = "input") -> str:
    """One of 600 lines, a third of them errors."""
    made = a_batch(api, output_order=order)
    stored_at_random(worker, made["id"], LINES, seed=3)
    assert finalise.step(worker, Settings()) == 1
    return str(made["id"])


def purge_some(owner: Connection[TupleRow]) -> None:
    """The purge has begun: the index is gone, and a slice of the lines."""
    owner.execute("DELETE FROM output_index")
    owner.execute("DELETE FROM result WHERE line % 7 = 0")


def told(reply: Any) -> tuple[int, str | None]:
    return reply.status_code, reply.json()["error"]["code"]


@pytest.mark.parametrize("order", ["input", "completion"])
def test_what_is_left_of_purged_results_is_not_taken_for_all(
    api: Api, worker: Worker, owner: Connection[TupleRow], order: str
) -> None:
    batch, http = a_final_batch(api, worker, order), api.http()
    output_id = http.get(f"/v1/batches/{batch}").json()["output_file_id"]

    purge_some(owner)

    assert told(http.get(f"/v1/batches/{batch}/results")) == (404, "results_gone")
    assert told(http.get(f"/v1/batches/{batch}/results?limit=5")) == (404, "results_gone")
    assert told(http.post(f"/v1/batches/{batch}/retry")) == (409, "results_gone")
    assert told(http.get(f"/v1/files/{output_id}/content")) == (404, "results_gone")
    assert http.get(f"/v1/batches/{batch}").json()["request_counts"]["total"] == LINES


def test_a_request_whose_result_was_purged_is_not_queued_again(
    api: Api, worker: Worker, owner: Connection[TupleRow], api_settings: Settings
) -> None:
    reply = api.http().post("/v1/batches", json={"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": {"model": "tiny-chat", "messages": []}} for name in "ab"
    ]})  # fmt: skip
    batch = reply.json()["id"]
    plan_all(api_settings)
    for line in (1, 2):
        store(worker, row_of(worker, batch), line, b"{}\n")
    assert finalise.step(worker, api_settings) == 1
    owner.execute("DELETE FROM output_index")
    owner.execute("DELETE FROM result WHERE line = 1")

    assert told(api.http().get(f"/v1/batches/{batch}/requests/a")) == (404, "results_gone")
    assert api.http().get(f"/v1/batches/{batch}/requests/b").json()["status"] == "succeeded"


async def rest_after(pieces: AsyncIterator[bytes], act: Callable[[], None]) -> int:
    """The bytes of all pieces, where `act` happens after the first."""
    read = len(await anext(pieces))
    act()
    async for piece in pieces:
        read += len(piece)
    return read


@pytest.mark.parametrize("order", ["input", "completion"])
async def test_a_range_breaks_off_when_its_lines_are_purged(
    api: Api, worker: Worker, owner: Connection[TupleRow], database: Database, order: str
) -> None:
    """Lines further on must not stand in for those that are gone."""
    row = row_of(worker, a_final_batch(api, worker, order))
    index = await outputs.index_of(database, row.tenant_id, row.id, Side.OUTPUT)
    assert index is not None
    most_of_it = Span(0, index.bytes * 3 // 4)

    with pytest.raises(Gone):
        await rest_after(
            outputs.part(database, row.tenant_id, row.id, Side.OUTPUT, index, most_of_it), lambda: purge_some(owner)
        )


@pytest.mark.parametrize("order", ["input", "completion"])
async def test_a_growing_file_that_ends_and_is_purged_breaks_off(
    api: Api, worker: Worker, owner: Connection[TupleRow], database: Database, order: str
) -> None:
    """A reader so slow that the batch is final, and its files deleted, before it has read what was there."""
    made = a_batch(api, output_order=order)
    stored_at_random(worker, made["id"], LINES, seed=4)
    row = row_of(worker, made["id"])

    def end() -> None:
        assert finalise.step(worker, Settings()) == 1
        purge_some(owner)

    with pytest.raises(Gone):
        await rest_after(outputs.whole(database, row.tenant_id, row.id, Side.OUTPUT), end)


async def test_a_page_of_results_breaks_off_when_its_lines_are_purged(
    api: Api, worker: Worker, owner: Connection[TupleRow], database: Database
) -> None:
    row = row_of(worker, a_final_batch(api, worker))
    async with database.tenant(row.tenant_id) as connection:
        page = await batch_lines.page(connection, row.tenant_id, row.id, 0, LINES, None)

    with pytest.raises(Gone):
        await rest_after(batch_lines.read(database, page), lambda: purge_some(owner))


def test_a_settler_that_stood_still_fills_nothing_into_a_purged_batch(
    api: Api, worker: Worker, owner: Connection[TupleRow], api_settings: Settings
) -> None:
    batch = api.http().post("/v1/batches", json={"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "tiny-chat", "messages": []}}
    ]}).json()["id"]  # fmt: skip
    plan_all(api_settings)
    row = row_of(worker, batch)
    owner.execute("UPDATE batch SET state = 6, cancelling_at = now()")
    assert settle.step(worker, api_settings) == 1
    assert finalise.step(worker, api_settings) == 1
    owner.execute("DELETE FROM result")

    settle._fill(worker, row.tenant_id, row.id, Outcome.CANCELLED)

    assert worker.execute("SELECT count(*) FROM result").fetchone() == (0,)
    assert worker.execute("SELECT sum(cancelled) FROM progress").fetchone() == (1,)
    assert worker.execute("SELECT state FROM batch").fetchone() == (int(BatchState.CANCELLED),)


HOOK = {"name": "w", "url": "https://example.com/hook", "event_types": ["batch.completed"]}


def test_endpoints_are_paged_through_while_they_are_deleted(api: Api) -> None:
    http = api.http()
    made = [http.post("/v1/webhook_endpoints", json=HOOK).json()["id"] for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = http.get("/v1/webhook_endpoints", params={"limit": "2", **cursor}).json()
        seen += [endpoint["id"] for endpoint in page["data"]]
        for name in seen[-2:]:
            http.delete(f"/v1/webhook_endpoints/{name}")
        if not page["has_more"]:
            break
        cursor = {"after": seen[-1]}

    assert seen == made[::-1]
    assert http.get("/v1/webhook_endpoints?after=we_" + "0" * 32).status_code == 400


def test_a_test_event_is_signed_though_its_endpoint_goes(
    api: Api, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting waits until the secrets were read: an event without a signature would be a forged one to its receiver."""
    http, live, found = api.http(), signing_secrets.live, []
    name = http.post("/v1/webhook_endpoints", json=HOOK).json()["id"]
    deleting = threading.Thread(target=lambda: api.http().delete(f"/v1/webhook_endpoints/{name}"))

    async def late(*asked: Any) -> list[str]:
        deleting.start()
        await asyncio.to_thread(until, lambda: worker.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
        found.extend(await live(*asked))
        raise Gone("far enough")

    monkeypatch.setattr(signing_secrets, "live", late)
    http.post(f"/v1/webhook_endpoints/{name}/test", json={"event_type": "batch.completed"})
    deleting.join()

    assert len(found) == 1
    assert http.get(f"/v1/webhook_endpoints/{name}").status_code == 404
