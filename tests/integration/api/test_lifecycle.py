"""The lifecycle cases, with real duties and a real worker."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import openai
import pytest

from slackwater.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker
from tests.integration.api.test_cases import create
from tests.integration.api.work import add_echo, at_work, ended, plan_all
from tests.unit.reader.test_cases import CASES
from tests.waiting import until


def scripted(name: str) -> bytes:
    """A case whose words are put into the scripted engine's language."""
    text = (CASES / name).read_bytes()
    return text.replace(b'"slow please"', b'"echo:sleep=100"').replace(b'"fast"', b'"echo:sleep=0"')


def ids_of(http: Any, seen: Any) -> Counter[str]:
    """How often each custom_id stands in the two files of a batch."""
    found: Counter[str] = Counter()
    for file_id in (seen["output_file_id"], seen["error_file_id"]):
        if file_id is not None:
            text = http.get(f"/v1/files/{file_id}/content").text
            found.update(json.loads(line)["custom_id"] for line in text.splitlines())
    return found


def test_a_batch_of_which_every_line_fails_completes(api: Api, api_settings: Settings, worker: Worker) -> None:
    """LC-01."""
    batch_id = create(api, (CASES / "LC-01-every-line-fails.jsonl").read_bytes(), on_invalid="skip")
    http = api.http()
    with at_work(api_settings, with_worker=False):
        seen = ended(http, batch_id)

    counts = seen["request_counts"]
    assert (seen["status"], seen["output_file_id"]) == ("completed", None)
    assert (counts["total"], counts["completed"], counts["failed"]) == (3, 0, 3)
    assert ids_of(http, seen) == Counter(["f1", "f2", "f3"])
    events = worker.execute("SELECT type, body FROM event").fetchall()
    assert [kind for kind, _ in events] == ["batch.completed"]
    assert json.loads(events[0][1])["data"]["request_counts"]["failed"] == 3


def test_a_cancel_keeps_what_is_done(api: Api, api_settings: Settings) -> None:
    """LC-02."""
    add_echo(api.dsn)
    batch_id = create(api, scripted("LC-02-cancel-mid-run.jsonl"))
    http = api.http()
    with at_work(api_settings):
        until(lambda: http.get(f"/v1/batches/{batch_id}").json()["request_counts"]["completed"] == 5, 60)
        assert http.post(f"/v1/batches/{batch_id}/cancel").json()["status"] == "cancelling"
        seen = ended(http, batch_id)

    counts, found = seen["request_counts"], ids_of(http, seen)
    assert seen["status"] == "cancelled"
    assert seen["cancelled_at"] >= seen["cancelling_at"]
    assert (len(found), set(found.values())) == (25, {1})
    assert (counts["completed"], counts["failed"], counts["cancelled"]) == (5, 20, 20)


def test_cancel_early_and_twice(api: Api, api_settings: Settings) -> None:
    """LC-04."""
    add_echo(api.dsn)
    data = scripted("LC-02-cancel-mid-run.jsonl").splitlines(keepends=True)[0]
    early, late = create(api, data), create(api, data)
    http = api.http()
    first, second = (http.post(f"/v1/batches/{early}/cancel") for _ in range(2))
    with at_work(api_settings):
        final = ended(http, early)
        ended(http, late)

    third, done = (http.post(f"/v1/batches/{batch}/cancel") for batch in (early, late))
    foreign = api.http(api.other_key).post(f"/v1/batches/{early}/cancel")
    assert [r.status_code for r in (first, second, third, done, foreign)] == [200, 200, 200, 409, 404]
    assert (final["status"], final["in_progress_at"]) == ("cancelled", None)
    assert third.json() == final
    assert done.headers["x-should-retry"] == "false"


def test_expiry_keeps_what_is_done(api: Api, api_settings: Settings) -> None:
    """LC-05."""
    add_echo(api.dsn)
    batch_id = create(api, scripted("LC-05-expiry-keeps-partials.jsonl"), completion_window="1h")
    http = api.http()
    with at_work(api_settings):
        until(lambda: http.get(f"/v1/batches/{batch_id}").json()["request_counts"]["completed"] == 3, 60)
        changed = http.patch(f"/v1/batches/{batch_id}", json={"completion_window": "30d"})
        assert changed.json()["expires_at"] == changed.json()["created_at"] + 30 * 86_400
        created_at = changed.json()["created_at"]
        _expire(api.dsn, batch_id)
        seen = ended(http, batch_id)

    counts = seen["request_counts"]
    assert seen["status"] == "expired"
    assert seen["expired_at"] >= created_at
    assert (counts["total"], counts["completed"], counts["failed"], counts["expired"]) == (10, 3, 7, 7)
    errors = http.get(f"/v1/files/{seen['error_file_id']}/content").text.splitlines()
    assert {json.loads(line)["error"]["code"] for line in errors} == {"batch_expired"}


def _expire(dsn: str, batch_id: str) -> None:
    """Let the window of a batch end now."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("UPDATE batch SET expires_at = now() WHERE public_id = %s", (batch_id,))


@pytest.mark.parametrize("end", ["completed", "cancelled", "expired"])
def test_every_end_comes_without_listeners(api: Api, api_settings: Settings, worker: Worker, end: str) -> None:
    """LC-07: no webhook, nobody polls, no notification is sent while the batch ends."""
    batch_id = create(api, (CASES / "LC-01-every-line-fails.jsonl").read_bytes(), on_invalid="skip")
    if end != "completed":
        batch_id = create(api, scripted("LC-02-cancel-mid-run.jsonl"))
    plan_all(api_settings)
    if end == "cancelled":
        worker.execute("UPDATE batch SET state = 6, cancelling_at = now() WHERE public_id = %s", (batch_id,))
    if end == "expired":
        worker.execute("UPDATE batch SET expires_at = now() WHERE public_id = %s", (batch_id,))

    with at_work(api_settings, with_worker=False):
        query = "SELECT counts IS NOT NULL FROM batch WHERE public_id = %s"
        until(lambda: worker.execute(query, (batch_id,)).fetchone() == (True,), 60)

    seen = api.http().get(f"/v1/batches/{batch_id}").json()
    assert seen["status"] == end
    assert seen[f"{end}_at"] is not None
    assert len(ids_of(api.http(), seen)) == seen["request_counts"]["total"]


def test_results_outlive_the_files_that_are_deleted(api: Api, api_settings: Settings) -> None:
    """LC-08."""
    add_echo(api.dsn)
    client, http = api.client(), api.http()
    file = client.files.create(file=Path(CASES / "IN-04-utf8-bom.jsonl"), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    one, two = (http.post("/v1/batches", json=body).json()["id"] for _ in range(2))
    plan_all(api_settings)
    client.files.delete(file.id)
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)
    with at_work(api_settings):
        first, second = ended(http, one), ended(http, two)

    assert [b["request_counts"]["completed"] for b in (first, second)] == [2, 2]
    client.files.delete(first["output_file_id"])
    assert http.get(f"/v1/files/{first['output_file_id']}").status_code == 404
    assert http.get(f"/v1/batches/{one}").json()["output_file_id"] == first["output_file_id"]
    assert len(ids_of(http, second)) == 2
