"""Changing a batch that waits, finding batches, and where they stand in line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
from psycopg.rows import dict_row

from scheduler.duties import plan, planned
from scheduler.fairness import rank
from scheduler.queue.claims import Claims
from slackwater.lifecycle import BatchState
from slackwater.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker, end, row_of
from tests.integration.api.test_cases import create
from tests.integration.api.work import plan_all
from tests.scenario import chat_line


def patch(api: Api, batch_id: str, key: str | None = None, **changes: Any) -> httpx2.Response:
    return api.http(key).patch(f"/v1/batches/{batch_id}", json=changes)


def two_lines() -> bytes:
    return b"\n".join([chat_line("a"), chat_line("b")])


async def order_of_turn(dsn: str) -> list[int]:
    """The batches in the order in which a worker would take them."""
    claims = Claims.on(dsn, 1, 15.0)
    try:
        return [place.batch_id for place in rank(await claims.line([1]), since={})]
    finally:
        await claims.close()


async def test_a_priority_changes_whose_turn_it_is(api: Api, api_settings: Settings, worker: Worker) -> None:
    first, second = create(api, two_lines()), create(api, two_lines())
    waiting = create(api, two_lines())
    plan_all(api_settings)
    one, two, three = (row_of(worker, batch).id for batch in (first, second, waiting))
    assert await order_of_turn(api.dsn) == [one, two, three]

    seen = patch(api, second, priority=7).json()

    assert (seen["priority"], seen["place_in_line"]) == (7, 1)
    assert api.http().get(f"/v1/batches/{first}").json()["place_in_line"] == 2
    assert await order_of_turn(api.dsn) == [two, one, three]
    lane = "SELECT l.priority FROM batch_model m JOIN lane l ON l.id = m.lane_id WHERE m.batch_id = %s"
    assert worker.execute(lane, (two,)).fetchone() == (7,)


def test_a_window_counts_from_the_creation(api: Api, api_settings: Settings, worker: Worker) -> None:
    batch_id = create(api, two_lines())
    before = patch(api, batch_id, completion_window="36h").json()
    plan_all(api_settings)

    after = patch(api, batch_id, completion_window="48h").json()

    assert [b["expires_at"] - b["created_at"] for b in (before, after)] == [36 * 3600, 48 * 3600]
    assert (after["completion_window"], after["status"]) == ("48h", "in_progress")
    lane = worker.execute(
        "SELECT l.deadline_at FROM batch_model m JOIN lane l ON l.id = m.lane_id WHERE m.batch_id = %s",
        (row_of(worker, batch_id).id,),
    ).fetchone()
    assert lane is not None
    due = datetime.fromtimestamp(after["expires_at"], UTC)
    assert due - timedelta(minutes=15) < lane[0] <= due + timedelta(seconds=1)


def test_a_change_while_the_file_is_being_read_reaches_the_plan(
    api: Api, api_settings: Settings, worker: Worker
) -> None:
    batch_id = create(api, two_lines())
    row = row_of(worker, batch_id)
    old = worker.cursor(row_factory=dict_row).execute("SELECT * FROM batch WHERE id = %s", (row.id,)).fetchone()
    assert old is not None
    reading = plan.read(worker, api_settings, old)
    patch(api, batch_id, priority=9)

    planned.start(worker, old, reading)

    lane = worker.execute("SELECT l.priority FROM batch_model m JOIN lane l ON l.id = m.lane_id").fetchone()
    assert lane == (9,)


def test_a_window_that_has_ended_is_refused(api: Api, worker: Worker) -> None:
    batch_id = create(api, two_lines())
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute("UPDATE batch SET created_at = now() - interval '2 hours'")

    reply = patch(api, batch_id, completion_window="1h")

    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "completion_window")
    assert api.http().get(f"/v1/batches/{batch_id}").json()["completion_window"] == "24h"


def test_what_ends_cannot_be_changed(api: Api, worker: Worker) -> None:
    batch_id = create(api, two_lines())
    for state in set(BatchState) - {BatchState.VALIDATING, BatchState.IN_PROGRESS}:
        worker.execute("UPDATE batch SET state = %s", (int(state),))

        reply = patch(api, batch_id, priority=1)

        assert (reply.status_code, reply.headers["x-should-retry"]) == (409, "false"), state


def test_a_foreign_batch_cannot_be_changed(api: Api) -> None:
    batch_id = create(api, two_lines())

    assert patch(api, batch_id, api.other_key, priority=1).status_code == 404
    assert patch(api, "batch_x", priority=1).status_code == 404
    faults: list[dict[str, Any]] = [{"priority": 101}, {"completion_window": "31d"}, {"metadata": {}}]
    for wrong in faults:
        assert patch(api, batch_id, **wrong).status_code == 400


def test_lists_are_filtered_by_status_and_metadata(api: Api, worker: Worker) -> None:
    made = [create(api, two_lines(), metadata={"team": "a" if n % 2 else "b", "n": str(n)}) for n in range(5)]
    bare = create(api, two_lines())
    end(worker, row_of(worker, made[3]), BatchState.FAILED)
    http = api.http()

    def ids(**query: Any) -> list[str]:
        return [batch["id"] for batch in http.get("/v1/batches", params=query).json()["data"]]

    assert ids() == [bare, *made[::-1]]
    assert ids(status="failed") == [made[3]]
    assert ids(**{"metadata[team]": "a"}) == [made[3], made[1]]
    assert ids(**{"metadata[team]": "a", "metadata[n]": "1"}) == [made[1]]
    assert ids(**{"metadata[team]": "a", "status": "validating"}) == [made[1]]
    assert ids(**{"metadata[team]": "c"}) == []
    first = http.get("/v1/batches", params={"metadata[team]": "b", "limit": 2}).json()
    rest = http.get("/v1/batches", params={"metadata[team]": "b", "limit": 2, "after": first["last_id"]}).json()
    assert ([b["id"] for b in first["data"]], first["has_more"]) == ([made[4], made[2]], True)
    assert ([b["id"] for b in rest["data"]], rest["has_more"]) == ([made[0]], False)
    assert http.get("/v1/batches?status=done").json()["error"]["param"] == "status"
    assert http.get("/v1/batches?metadata[a]=1&metadata[a]=2").status_code == 400
    assert api.http(api.other_key).get("/v1/batches?metadata[team]=a").json()["data"] == []


def test_an_end_is_estimated_from_what_ended_lately_or_not_at_all(
    api: Api, api_settings: Settings, worker: Worker
) -> None:
    first, second = create(api, two_lines()), create(api, two_lines())
    plan_all(api_settings)
    http = api.http()
    assert http.get(f"/v1/batches/{first}").json()["estimated_completion_at"] is None
    row = row_of(worker, first)
    worker.execute(
        "INSERT INTO ledger (at, tenant_id, project_id, flow, model_id, requests, prompt_tokens, completion_tokens, cached_tokens,"
        " cost_picodollars) SELECT now() - s * interval '1 s', %s, 1, 'batch', 1, 1, 1, 1, 0, 0 FROM generate_series(10, 100, 10) s",
        (row.tenant_id,),
    )

    listed = {batch["id"]: batch for batch in http.get("/v1/batches").json()["data"]}

    now = datetime.now(UTC).timestamp()
    waits = [listed[batch]["estimated_completion_at"] - now for batch in (first, second)]
    assert 15 <= waits[0] <= 40
    assert 30 <= waits[1] <= 60
    assert [listed[batch]["place_in_line"] for batch in (first, second)] == [1, 2]
    assert api.http(api.other_key).get("/v1/batches").json()["data"] == []
