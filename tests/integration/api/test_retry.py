"""Running what did not succeed once more, and dry runs."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import psycopg

from slackwater.lifecycle import BatchState
from slackwater.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker, end, index_nothing, row_of, store
from tests.integration.api.test_cases import add_models, create
from tests.integration.api.work import add_echo, at_work, ended, plan_all
from tests.scenario import chat_line
from tests.unit.reader.test_cases import CASES, TABLE

ODD = b'{ "custom_id":"odd" ,"method":"POST","url":"/v1/chat/completions","body":{"model":"tiny-chat","messages":[],"n":1.0e+0}}'


def retry(api: Api, batch_id: str, key: str | None = None, **options: Any) -> httpx2.Response:
    return api.http(key).post(f"/v1/batches/{batch_id}/retry", **options)


def test_what_failed_runs_again_in_a_new_batch(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    bad, good = chat_line("bad", "echo:status=400 times=1"), chat_line("good")
    data = b"\xef\xbb\xbf" + b"\r\n".join([good, b"", bad, ODD[:-1] + b"," + ODD[1:], chat_line("x", model="none")])
    old_id = create(api, data, on_invalid="skip", metadata={"a": "b"}, priority=3, completion_window="7d")
    http = api.http()
    with at_work(api_settings):
        old = ended(http, old_id)
        made = retry(api, old_id).json()
        new = ended(http, made["id"])

    assert (made["status"], made["retry_of"], made["metadata"]) == ("validating", old_id, {"a": "b"})
    assert (made["priority"], made["completion_window"], made["on_invalid"]) == (3, "7d", "skip")
    assert http.get(f"/v1/batches/{old_id}").json() == old
    lines = api.client().files.content(new["input_file_id"]).read()
    assert lines == b"\n".join([bad, ODD[:-1] + b"," + ODD[1:], chat_line("x", model="none")]) + b"\n"
    counts = new["request_counts"]
    assert (counts["total"], counts["completed"], counts["failed"]) == (3, 1, 2)
    assert json.loads(api.client().files.content(new["output_file_id"]).read())["custom_id"] == "bad"


def settled(api: Api, worker: Worker, settings: Settings, state: BatchState = BatchState.CANCELLED) -> str:
    """A final batch of three lines, of which the second succeeded."""
    batch_id = create(api, b"\n".join(chat_line(f"r{n}") for n in range(3)))
    plan_all(settings)
    row = row_of(worker, batch_id)
    for line, outcome in ((1, 2), (2, 0), (3, 3)):
        store(worker, row, line, b"{}\n", outcome=outcome)
    end(worker, row, state)
    index_nothing(worker, row)
    return batch_id


def test_the_body_may_say_otherwise(api: Api, api_settings: Settings, worker: Worker) -> None:
    batch_id = settled(api, worker, api_settings)

    made = retry(api, batch_id, json={"priority": -1, "completion_window": "1h", "metadata": {"again": "1"}}).json()

    assert (made["priority"], made["metadata"]) == (-1, {"again": "1"})
    assert made["expires_at"] == made["created_at"] + 3600
    lines = api.client().files.content(made["input_file_id"]).read()
    assert lines == chat_line("r0") + b"\n" + chat_line("r2") + b"\n"


def test_what_cannot_be_retried_is_refused(api: Api, api_settings: Settings, worker: Worker) -> None:
    running, failed = create(api, chat_line("a")), create(api, b"nonsense")
    plan_all(api_settings)
    gone = settled(api, worker, api_settings)
    api.client().files.delete(api.client().batches.retrieve(gone).input_file_id)
    expired = settled(api, worker, api_settings, BatchState.EXPIRED)
    purged = settled(api, worker, api_settings, BatchState.COMPLETED)
    files = {batch: api.client().batches.retrieve(batch).input_file_id for batch in (expired, purged)}
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute("UPDATE file SET expires_at = now() WHERE public_id = %s", (files[expired],))
        owner.execute(
            "DELETE FROM file_chunk c USING file f WHERE f.id = c.file_id AND f.public_id = %s", (files[purged],)
        )
    batches = worker.execute("SELECT count(*) FROM batch").fetchone()

    codes = {"batch_not_final": [running], "nothing_to_retry": [failed], "input_gone": [gone, expired, purged]}
    for code, refused in codes.items():
        for batch_id in refused:
            reply = retry(api, batch_id)
            assert (reply.status_code, reply.json()["error"]["code"]) == (409, code)
            assert reply.headers["x-should-retry"] == "false"
    assert retry(api, expired, api.other_key).status_code == 404
    assert retry(api, expired, json={"endpoint": "/v1/embeddings"}).json()["error"]["code"] == "unknown_parameter"
    assert worker.execute("SELECT count(*) FROM batch").fetchone() == batches
    assert worker.execute("SELECT count(*) FROM file WHERE NOT is_complete").fetchone() == (0,)


def test_a_retry_that_is_sent_again_makes_one_batch(api: Api, api_settings: Settings, worker: Worker) -> None:
    batch_id = settled(api, worker, api_settings)
    key = {"idempotency-key": "again"}

    first, second = retry(api, batch_id, headers=key), retry(api, batch_id, headers=key)
    other = retry(api, batch_id, headers=key, json={"priority": 1})

    assert first.json()["id"] == second.json()["id"]
    assert second.headers["idempotent-replayed"] == "true"
    assert other.status_code == 409
    assert retry(api, batch_id).json()["id"] != first.json()["id"]


def test_a_dry_run_finds_what_planning_would(api: Api, worker: Worker) -> None:
    add_models(api)
    http = api.http()
    for case in TABLE:
        file = api.client().files.create(file=(CASES / case.file).read_bytes(), purpose="batch")
        body = {"input_file_id": file.id, "endpoint": case.endpoint}

        seen = http.post("/v1/batches/validate", json=body).json()

        told = [(e["line"], e["code"], e["param"]) for e in (seen["errors"] or {"data": []})["data"]]
        assert told == [error[:3] for error in case.errors], case.file
        assert seen["valid"] == (not case.errors)
        assert seen["request_counts"]["valid"] == sum(model["requests"] for model in seen["models"])
        if not seen["errors"] or seen["errors"]["data"][0]["line"]:
            assert seen["request_counts"]["valid"] == len(case.runs), case.file
    assert worker.execute("SELECT count(*) FROM batch").fetchone() == (0,)


def test_a_dry_run_of_requests_in_line_stores_nothing(api: Api, worker: Worker) -> None:
    lines = [json.loads(chat_line("a", "x" * 400)), json.loads(chat_line("a")), json.loads(chat_line("b"))]

    reply = api.http().post("/v1/batches/validate", json={"endpoint": "/v1/chat/completions", "requests": lines})

    seen = reply.json()
    assert seen["request_counts"] == {"total": 3, "valid": 2, "invalid": 1}
    assert [model["model"] for model in seen["models"]] == ["tiny-chat"]
    assert seen["estimated_input_tokens"] >= 100
    assert seen["errors"]["data"][0]["code"] == "duplicate_custom_id"
    for table in ("file", "file_chunk", "batch"):
        assert worker.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,)


def test_a_dry_run_needs_a_file_of_ones_own(api: Api) -> None:
    file = api.client(api.other_key).files.create(file=b"{}", purpose="batch")
    for named in (file.id, "file-" + "0" * 32, "x\u0000"):
        body = {"input_file_id": named, "endpoint": "/v1/chat/completions"}
        reply = api.http().post("/v1/batches/validate", json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400 if "\0" in named else 404, "input_file_id")
