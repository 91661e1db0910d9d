"""Files in the order of completion: while the batch runs, once it is final, by range; and what a batch's events carry."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx2
import psycopg
import pytest

from scheduler.duties import finalise, purge
from slackwater.errors import Gone
from slackwater.lifecycle import Side
from slackwater.settings import Settings
from slackwater.storage import outputs
from slackwater.storage.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker, row_of, run, store
from tests.integration.api.test_batches import BODY, a_file
from tests.integration.api.test_outputs import check_ranges
from tests.integration.api.work import plan_all
from tests.scenario import chat_line

MARKS = {"order": "4711", "shop": "Gärtner"}


def a_batch(api: Api, **members: Any) -> Any:
    reply = api.http().post("/v1/batches", json=BODY | {"input_file_id": a_file(api)} | members)
    assert reply.status_code == 200, reply.text
    return reply.json()


def content(api: Api, file_id: str) -> bytes:
    return api.http().get(f"/v1/files/{file_id}/content").content


def stored(worker: Worker, batch_id: str, total: int, *, seed: int) -> dict[int, list[bytes]]:
    """Store all lines one after the other in a random order; returns the bodies of each side as they were stored."""
    source, batch = random.Random(seed), row_of(worker, batch_id)
    run(worker, batch, total)
    sides: dict[int, list[bytes]] = {0: [], 1: []}
    for line in source.sample(range(1, total + 1), total):
        side, body = int(source.random() < 0.3), b"%d:" % line + b"x" * source.randrange(60) + b"\n"
        store(worker, batch, line, body, outcome=side)
        sides[side].append(body)
    return sides


def test_a_growing_file_has_what_was_stored_first_first(api: Api, worker: Worker) -> None:
    made = a_batch(api, output_order="completion")
    batch = row_of(worker, made["id"])
    run(worker, batch, 4)
    for line in (3, 1, 4):
        store(worker, batch, line, b"%d\n" % line)

    output_id = api.http().get(f"/v1/batches/{made['id']}").json()["output_file_id"]

    assert content(api, output_id) == b"3\n1\n4\n"
    store(worker, batch, 2, b"2\n")
    assert content(api, output_id) == b"3\n1\n4\n2\n"


def test_a_final_file_keeps_that_order_in_every_range(api: Api, worker: Worker) -> None:
    made = a_batch(api, output_order="completion")
    sides = stored(worker, made["id"], 900, seed=5)
    grown = api.http().get(f"/v1/batches/{made['id']}").json()
    before = [content(api, grown[f"{side}_file_id"]) for side in ("output", "error")]

    assert finalise.step(worker, Settings()) == 1

    done = api.http().get(f"/v1/batches/{made['id']}").json()
    assert (done["status"], done["output_order"]) == ("completed", "completion")
    for side, file_id in enumerate((done["output_file_id"], done["error_file_id"])):
        data = b"".join(sides[side])
        assert before[side] == data
        assert api.http().get(f"/v1/files/{file_id}").json()["bytes"] == len(data)
        check_ranges(api, file_id, data, random.Random(side))


def test_lines_of_one_transaction_stand_in_input_order(api: Api, worker: Worker) -> None:
    made = a_batch(api, output_order="completion")
    batch = row_of(worker, made["id"])
    run(worker, batch, 3)
    store(worker, batch, 3, b"3\n")
    with worker.transaction():
        for line in (2, 1):
            store(worker, batch, line, b"%d\n" % line)
    finalise.step(worker, Settings())

    output_id = api.http().get(f"/v1/batches/{made['id']}").json()["output_file_id"]

    assert content(api, output_id) == b"3\n1\n2\n"


def test_the_frozen_order_rules_once_final(api: Api, worker: Worker) -> None:
    """A clock that was wrong, or a restore, must not change the bytes."""
    made = a_batch(api, output_order="completion")
    sides = stored(worker, made["id"], 300, seed=6)
    finalise.step(worker, Settings())
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute("UPDATE result SET at = now()")

    output_id = api.http().get(f"/v1/batches/{made['id']}").json()["output_file_id"]

    assert content(api, output_id) == b"".join(sides[0])


def test_a_file_whose_lines_vanish_is_not_a_shorter_file(api: Api, worker: Worker) -> None:
    made = a_batch(api, output_order="completion")
    stored(worker, made["id"], 900, seed=7)
    finalise.step(worker, Settings())
    output_id = api.http().get(f"/v1/batches/{made['id']}").json()["output_file_id"]
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        newest = "SELECT line FROM result WHERE outcome = 0 ORDER BY at DESC, line DESC LIMIT 1"
        owner.execute(f"DELETE FROM result WHERE line = ({newest})")

        with pytest.raises(httpx2.RemoteProtocolError):
            content(api, output_id)
        owner.execute(f"DELETE FROM result WHERE line = ({newest.replace('DESC', 'ASC')})")
        assert api.http().get(f"/v1/files/{output_id}/content").status_code == 404


@pytest.mark.parametrize("order", ["input", "completion"])
async def test_a_purge_takes_the_order_with_the_lines(api: Api, worker: Worker, order: str) -> None:
    made = a_batch(api, output_order=order)
    stored(worker, made["id"], 10, seed=8)
    finalise.step(worker, Settings())
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute("UPDATE batch SET completed_at = now() - interval '1 hour'")
        owner.execute("UPDATE file SET expires_at = now() - interval '1 second' WHERE batch_id IS NOT NULL")

    assert purge.step(worker, Settings()) == 1

    left = "SELECT (SELECT count(*) FROM output_index), (SELECT count(*) FROM result)"
    assert worker.execute(left).fetchone() == (0, 0)
    batch, database = row_of(worker, made["id"]), Database(api.dsn, pool_size=1)
    try:
        with pytest.raises(Gone):  # A reader who found the file a moment before.
            [piece async for piece in outputs.whole(database, batch.tenant_id, batch.id, Side.OUTPUT)]
    finally:
        await database.close()


def test_long_lines_come_whole(api: Api, worker: Worker) -> None:
    made = a_batch(api, output_order="completion")
    batch = row_of(worker, made["id"])
    run(worker, batch, 5)
    lines = {line: bytes([64 + line]) * 700_000 + b"\n" for line in (4, 2, 5, 1, 3)}
    for line, body in lines.items():
        store(worker, batch, line, body)
    output_id = api.http().get(f"/v1/batches/{made['id']}").json()["output_file_id"]
    whole = b"".join(lines.values())

    assert content(api, output_id) == whole
    finalise.step(worker, Settings())
    assert content(api, output_id) == whole
    reply = api.http().get(f"/v1/files/{output_id}/content", headers={"range": "bytes=1400000-2100010"})
    assert reply.content == whole[1_400_000:2_100_011]


def test_input_order_is_the_default_and_pages_of_results_keep_it(api: Api, worker: Worker) -> None:
    plain, made = a_batch(api), a_batch(api, output_order="completion")
    assert (plain["output_order"], plain["webhook_metadata"]) == ("input", None)
    for each in (plain, made):
        batch = row_of(worker, each["id"])
        run(worker, batch, 3)
        for line in (3, 1, 2):
            store(worker, batch, line, b"%d\n" % line)
        finalise.step(worker, Settings())

    output_id = api.http().get(f"/v1/batches/{plain['id']}").json()["output_file_id"]

    assert content(api, output_id) == b"1\n2\n3\n"
    assert api.http().get(f"/v1/batches/{made['id']}/results").content == b"1\n2\n3\n"


def events(worker: Worker, batch_id: str) -> list[dict[str, Any]]:
    rows = worker.execute("SELECT body FROM event WHERE batch_id = %s", (row_of(worker, batch_id).id,))
    return [json.loads(body)["data"] for (body,) in rows]


@pytest.mark.parametrize("marks", [MARKS, {}, None])
def test_events_carry_what_the_subscriber_was_promised(api: Api, worker: Worker, marks: dict[str, str] | None) -> None:
    made = a_batch(api, webhook_metadata=marks, metadata={"mine": "yes"})
    assert made["webhook_metadata"] == marks
    run(worker, row_of(worker, made["id"]), 0)
    finalise.step(worker, Settings())

    (data,) = events(worker, made["id"])

    assert (data["webhook_metadata"], data["metadata"], data["status"]) == (marks, {"mine": "yes"}, "completed")


def test_the_event_of_a_refused_batch_carries_it_too(api: Api, api_settings: Settings, worker: Worker) -> None:
    body = BODY | {"webhook_metadata": MARKS, "metadata": {"mine": "yes"}}
    made = api.http().post("/v1/batches", json=body).json()
    plan_all(api_settings)

    (data,) = events(worker, made["id"])

    assert (data["status"], data["webhook_metadata"], data["metadata"]) == ("failed", MARKS, {"mine": "yes"})
    assert (data["request_counts"]["total"], data["output_file_id"], data["usage"]["total_tokens"]) == (0, None, 0)


def test_a_retry_keeps_the_order_and_what_events_carry(api: Api, api_settings: Settings, worker: Worker) -> None:
    file = api.client().files.create(file=chat_line("a") + b"\n", purpose="batch")
    made = a_batch(api, input_file_id=file.id, output_order="completion", webhook_metadata=MARKS)
    plan_all(api_settings)
    store(worker, row_of(worker, made["id"]), 1, b"{}\n", outcome=1)
    finalise.step(worker, Settings())

    again = api.http().post(f"/v1/batches/{made['id']}/retry").json()

    assert (again["output_order"], again["webhook_metadata"]) == ("completion", MARKS)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"output_order": "random"}, "output_order"),
        ({"output_order": None}, "output_order"),
        ({"webhook_metadata": {str(n): "v" for n in range(17)}}, "webhook_metadata"),
        ({"webhook_metadata": {"k": 1}}, "webhook_metadata.k"),
        ({"webhook_metadata": {"k": "v" * 513}}, "webhook_metadata.k"),
        ({"webhook_metadata": {"k": "v\0"}}, "webhook_metadata.k"),
    ],
)
def test_what_they_may_not_be_is_refused_by_name(api: Api, members: dict[str, Any], param: str) -> None:
    reply = api.http().post("/v1/batches", json=BODY | members)

    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
