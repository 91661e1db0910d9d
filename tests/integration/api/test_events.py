"""The events of a batch: from any process, from any place on, and to the end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from api.routes.batch_events import Teller
from slackwater.settings import Settings
from slackwater.storage.database import Database
from slackwater.wire.batch_events import Seen
from tests.integration.api.conftest import Api, running
from tests.integration.api.rows import row_of, run, store
from tests.integration.api.test_cases import create
from tests.integration.api.work import add_echo, at_work
from tests.scenario import chat_line
from tests.waiting import until

Worker = Connection[TupleRow]


def told(reply: httpx2.Response) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(id, type, body) of each event as it comes."""
    fields: dict[str, str] = {}
    for line in reply.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}


def test_every_change_is_told_and_then_the_stream_ends(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    batch_id = create(
        api, b"\n".join(chat_line(f"r{n}", f"echo:sleep={n % 3}") for n in range(12)), metadata={"a": "b"}
    )
    http = api.http()
    with at_work(api_settings), http.stream("GET", f"/v1/batches/{batch_id}/events") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = list(told(reply))

    kinds = [kind for _, kind, _ in events if kind != "batch.progress"]
    assert kinds == ["batch.validating", "batch.in_progress", "batch.finalizing", "batch.completed"]
    done = [body["data"]["request_counts"]["completed"] for _, _, body in events]
    assert done == sorted(done)
    last = events[-1][2]
    assert (last["type"], last["data"]["status"], last["data"]["id"]) == ("batch.completed", "completed", batch_id)
    assert last["data"]["request_counts"]["completed"] == 12
    assert last["data"]["metadata"] == {"a": "b"}
    for n, (event_id, _, _) in enumerate(events):
        again = http.get(f"/v1/batches/{batch_id}/events", headers={"last-event-id": event_id})
        if n == len(events) - 1:
            assert (again.status_code, again.content) == (204, b"")
            continue
        kinds_left = [kind for _, kind, _ in events[n + 1 :] if kind != "batch.progress"]
        assert [kind for _, kind, _ in told(again)] == kinds_left


def test_progress_is_told_by_another_process_from_where_the_first_stopped(
    api: Api, api_settings: Settings, worker: Worker
) -> None:
    batch_id = create(api, b"{}")
    row = row_of(worker, batch_id)
    run(worker, row, 9)
    store(worker, row, 1, b"{}\n")
    with running(api_settings) as second:
        client = httpx2.Client(base_url=second, headers={"authorization": f"Bearer {api.key}"}, timeout=30)
        with client, client.stream("GET", f"/v1/batches/{batch_id}/events") as reply:
            events = told(reply)
            seen = [next(events)[1] for _ in range(2)]
            store(worker, row, 2, b"{}\n")
            event_id, kind, body = next(events)
        assert [*seen, kind] == ["batch.validating", "batch.in_progress", "batch.progress"]
        assert body["data"]["request_counts"]["completed"] == 2
    store(worker, row, 3, b"{}\n")

    with api.http().stream("GET", f"/v1/batches/{batch_id}/events", headers={"last-event-id": event_id}) as reply:
        _, kind, body = next(told(reply))

    assert (kind, body["data"]["request_counts"]["completed"]) == ("batch.progress", 3)


def test_a_server_that_stops_ends_its_streams_in_order(api: Api, api_settings: Settings) -> None:
    batch_id = create(api, b"{}")
    outcome: list[str] = []

    def read(url: str, began: threading.Event) -> None:
        with (
            httpx2.Client(base_url=url, headers={"authorization": f"Bearer {api.key}"}, timeout=30) as client,
            client.stream("GET", f"/v1/batches/{batch_id}/events") as reply,
        ):
            for _, kind, _ in told(reply):
                outcome.append(kind)
                began.set()
        outcome.append("ended")

    began = threading.Event()
    with running(api_settings) as second:
        reader = threading.Thread(target=read, args=(second, began))
        reader.start()
        assert began.wait(60)
    reader.join(60)

    assert outcome == ["batch.validating", "ended"]


async def test_a_quiet_stream_says_that_it_is_still_there(api: Api, worker: Worker) -> None:
    batch_id = create(api, b"{}")
    database = Database(api.dsn, pool_size=1)
    tenant_id, stopping = row_of(worker, batch_id).tenant_id, asyncio.Event()
    teller = Teller(stopping, _yes, database, tenant_id, batch_id, Seen(0, 0))
    try:
        pieces = [piece async for piece in _until(teller, stopping)]
    finally:
        await database.close()

    assert pieces[1] == b": still here\n\n"


async def _yes() -> bool:
    return True


async def _until(teller: Teller, stopping: asyncio.Event) -> Any:
    n = 0
    async for piece in teller.told(quiet_seconds=0.1):
        yield piece
        n += 1
        if n == 2:
            stopping.set()


def test_a_revoked_key_ends_its_stream(api: Api) -> None:
    batch_id = create(api, b"{}")
    with api.http().stream("GET", f"/v1/batches/{batch_id}/events") as reply:
        events = told(reply)
        next(events)
        with psycopg.connect(api.dsn, autocommit=True) as owner:
            owner.execute("UPDATE api_key SET revoked_at = now()")

        assert list(events) == []


def test_a_reader_who_leaves_is_let_go(api: Api, worker: Worker) -> None:
    batch_id = create(api, b"{}")
    with api.http().stream("GET", f"/v1/batches/{batch_id}/events") as reply:
        next(told(reply))

    query = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' AND pid <> pg_backend_pid()"
    until(lambda: worker.execute(query).fetchone() == (0,))
    assert api.http(api.other_key).get(f"/v1/batches/{batch_id}/events").status_code == 404
