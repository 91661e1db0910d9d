"""Batches, as the OpenAI SDK creates, reads, lists and cancels them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import psycopg
import pytest

from slackwater.lifecycle import BatchState
from slackwater.tenancy import keys
from slackwater.wire.batch import Counts
from tests.integration.api.conftest import MODEL, Api
from tests.integration.api.rows import Worker, end, row_of, run, store

BODY: dict[str, Any] = {
    "input_file_id": "file-" + "0" * 32,
    "endpoint": "/v1/chat/completions",
    "completion_window": "24h",
}


def a_file(api: Api, key: str | None = None) -> str:
    return api.client(key).files.create(file=b"{}", purpose="batch").id


def create(api: Api, **changes: Any) -> Any:
    return api.client().batches.create(**(BODY | {"input_file_id": a_file(api)} | changes))


def test_a_batch_is_created_in_validating(api: Api, worker: Worker) -> None:
    with psycopg.connect(api.dsn, autocommit=True) as listener:
        listener.execute("LISTEN slackwater")
        made = create(api, completion_window="36h", metadata={"k": "v"}, extra_body={"priority": 5})
        notices = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert (made.object, made.status, made.endpoint) == ("batch", "validating", BODY["endpoint"])
    assert made.expires_at == made.created_at + 36 * 3600
    assert made.metadata == {"k": "v"}
    assert made.model_extra is not None
    assert made.model_extra["priority"] == 5
    assert made.model_extra["waiting_reason"]["code"] == "validating"
    assert (made.output_file_id, made.error_file_id, made.errors) == (None, None, None)
    assert made._request_id.startswith("req_")
    assert api.client().batches.retrieve(made.id) == made
    assert notices == ["validate"]
    sides = worker.execute("SELECT side, purpose, is_complete FROM file WHERE batch_id IS NOT NULL ORDER BY side")
    assert sides.fetchall() == [(0, "batch_output", True), (1, "batch_output", True)]


@pytest.mark.parametrize("which", ["unknown", "deleted", "foreign", "no id at all"])
def test_an_input_file_that_is_not_there_makes_a_batch_without_a_file(api: Api, worker: Worker, which: str) -> None:
    named = {"unknown": BODY["input_file_id"], "no id at all": "../x"}.get(which) or a_file(
        api, api.other_key if which == "foreign" else None
    )
    if which == "deleted":
        api.client().files.delete(named)

    made = create(api, input_file_id=named)

    assert (made.status, made.input_file_id) == ("validating", named)
    assert worker.execute("SELECT file_id FROM batch").fetchall() == [(None,)]


ENDPOINTS = "'/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'"
FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"endpoint": "/v1/invalid/endpoint"},
        "endpoint",
        "invalid_value",
        f"Invalid value: '/v1/invalid/endpoint'. Supported values are: {ENDPOINTS}.",
    ),
    (
        {"endpoint": "SECRET-CANARY"},
        "endpoint",
        "invalid_value",
        f"Invalid value. Supported values are: {ENDPOINTS}.",
    ),
    (
        {"metadata": {"tags": ["x"]}},
        "metadata.tags",
        "invalid_type",
        "Invalid type for 'metadata.tags': expected a string, but got an array instead.",
    ),
    ({"metadata": {"k": "v" * 513}}, "metadata.k", "invalid_value", ""),
    ({"metadata": {str(n): "v" for n in range(17)}}, "metadata", "invalid_value", ""),
    ({"metadata": {"k": "v\x00"}}, "metadata.k", "invalid_value", ""),
    ({"metadata": "x"}, "metadata", "invalid_type", ""),
    ({"input_file_id": None}, "input_file_id", "invalid_type", ""),
    ({"input_file_id": ["x"]}, "input_file_id", "invalid_type", ""),
    ({"input_file_id": "file-\x00"}, "input_file_id", "invalid_value", ""),
    (
        {"output_expires_after": {"anchor": "created_at", "seconds": 60}},
        "output_expires_after.seconds",
        "invalid_value",
        "",
    ),
    ({"output_expires_after": {"seconds": 3600}}, "output_expires_after.anchor", "missing_required_parameter", ""),
    ({"priority": 101}, "priority", "invalid_value", ""),
    ({"priority": "5"}, "priority", "invalid_type", ""),
    ({"priority": True}, "priority", "invalid_type", ""),
    ({"on_invalid": "maybe"}, "on_invalid", "invalid_value", ""),
    ({"surprise": 1}, "surprise", "unknown_parameter", "Unknown parameter: 'surprise'."),
    *[
        ({"completion_window": window}, "completion_window", "invalid_value", "")
        for window in ("", "invalid", "0h", "31d", "24", "24H", "-1h", "1.5h", "٣h", "9" * 30 + "h", "24h\n")
    ],
]


def test_faults_of_the_request_are_refused_at_once(api: Api, worker: Worker) -> None:
    http = api.http()
    for change, param, code, message in FAULTS:
        reply = http.post("/v1/batches", json=BODY | change)
        error = reply.json()["error"]
        assert (reply.status_code, error["param"], error["code"]) == (400, param, code), change
        assert error["type"] == "invalid_request_error"
        assert error["message"] == message or not message
        assert "SECRET-CANARY" not in reply.text
    for missing in BODY:
        reply = http.post("/v1/batches", json={k: v for k, v in BODY.items() if k != missing})
        assert reply.json()["error"] == {
            "message": f"Missing required parameter: '{missing}'.",
            "type": "invalid_request_error",
            "param": missing,
            "code": "missing_required_parameter",
        }
    assert worker.execute("SELECT count(*) FROM batch").fetchone() == (0,)


@pytest.mark.parametrize("window", ["1s", "90m", "24h", "30d"])
def test_any_window_from_a_second_to_thirty_days_is_taken(api: Api, window: str) -> None:
    assert create(api, completion_window=window).completion_window == window


def test_counts_and_usage_are_live(api: Api, worker: Worker) -> None:
    made = create(api)
    batch = row_of(worker, made.id)
    run(worker, batch, 5)
    for line in (1, 2):
        store(worker, batch, line, b"{}\n", tokens=10)
    store(worker, batch, 3, b"{}\n", outcome=1)
    worker.execute(
        "INSERT INTO lease (token, worker_id, tenant_id, batch_id, model_id, first, n, rescues, deaths, attempts, deferrals, expires_at)"
        " VALUES (gen_random_uuid(), 1, %s, %s, 1, 3, 1, 0, 0, 0, 0, now() + interval '1 min')",
        (batch.tenant_id, batch.id),
    )

    seen = api.client().batches.retrieve(made.id)

    assert seen.status == "in_progress"
    assert seen.request_counts is not None
    assert seen.usage is not None
    assert seen.model_extra is not None
    counts = seen.request_counts
    assert (counts.total, counts.completed, counts.failed) == (5, 2, 1)
    assert counts.model_extra == {"queued": 1, "processing": 1, "expired": 0, "cancelled": 0}
    assert (seen.usage.input_tokens, seen.usage.output_tokens) == (20, 20)
    assert seen.model_extra["waiting_reason"] is None


def test_final_counts_are_the_frozen_ones(api: Api, worker: Worker) -> None:
    made = create(api)
    batch = row_of(worker, made.id)
    run(worker, batch, 2)
    store(worker, batch, 1, b"{}\n")
    end(worker, batch, BatchState.COMPLETED, Counts(succeeded=1, failed=1, prompt_tokens=7))
    worker.execute("DELETE FROM progress")

    seen = api.client().batches.retrieve(made.id)

    assert seen.request_counts is not None
    assert seen.usage is not None
    assert (seen.request_counts.completed, seen.request_counts.failed, seen.usage.input_tokens) == (1, 1, 7)


@pytest.mark.parametrize(
    ("admitted", "reason", "age", "code"),
    [
        (False, "live_waiting", 0, "live_waiting"),
        (True, None, 0, "in_line"),
        (False, "live_waiting", 9, "no_worker"),
        (False, "a word of a newer version", 0, "no_signal"),
    ],
)
def test_a_wait_has_its_reason(
    api: Api, worker: Worker, admitted: bool, reason: str | None, age: int, code: str
) -> None:
    made = create(api)
    batch = row_of(worker, made.id)
    run(worker, batch, 1)
    wait(worker, batch.tenant_id, batch.id)
    worker.execute(
        "INSERT INTO decision (worker_id, instance_id, at, admitted, reason, details)"
        " SELECT 1, id, now() - %s * interval '1 s', %s, %s, '{\"message\": \"two are waiting\"}' FROM instance",
        (age, admitted, reason),
    )

    seen = api.client().batches.retrieve(made.id)

    assert seen.model == MODEL
    assert seen.model_extra is not None
    assert seen.model_extra["waiting_reason"]["code"] == code
    if code == "live_waiting":
        assert seen.model_extra["waiting_reason"]["message"] == "one: two are waiting"


def wait(worker: Worker, tenant_id: int, batch_id: int) -> None:
    """A ready segment of a batch, and an instance that serves its model."""
    model = worker.execute("SELECT id FROM model").fetchone()
    assert model is not None
    lane = worker.execute(
        "INSERT INTO lane (tenant_id, model_id, priority, deadline_at) VALUES (%s, %s, 0, now()) RETURNING id",
        (tenant_id, *model),
    ).fetchone()
    assert lane is not None
    worker.execute(
        "INSERT INTO batch_model (tenant_id, batch_id, model_id, lane_id, total) VALUES (%s, %s, %s, %s, 1)",
        (tenant_id, batch_id, *model, *lane),
    )
    worker.execute(
        "INSERT INTO segment (tenant_id, batch_id, model_id, rank, first, n) VALUES (%s, %s, %s, 0, 0, 1)",
        (tenant_id, batch_id, *model),
    )
    instance = worker.execute(
        "INSERT INTO instance (public_id, name, engine) VALUES ('inst_1', 'one', 'echo') RETURNING id"
    ).fetchone()
    assert instance is not None
    worker.execute(
        "INSERT INTO instance_model (instance_id, model_id, upstream_name) VALUES (%s, %s, 'x')",
        (*instance, *model),
    )


def test_lists_page_without_an_empty_page(api: Api) -> None:
    file = a_file(api)
    made = [create(api, input_file_id=file).id for _ in range(6)]

    assert [batch.id for batch in api.client().batches.list(limit=3)] == made[::-1]
    second = api.client().batches.list(limit=3, after=made[3])
    assert ([batch.id for batch in second.data], second.has_more) == (made[2::-1], False)


def test_cancel_early_and_twice(api: Api, worker: Worker) -> None:
    client, made = api.client(), create(api)

    first = client.batches.cancel(made.id)
    again = client.batches.cancel(made.id)
    end(worker, row_of(worker, made.id), BatchState.CANCELLED)
    after = client.batches.cancel(made.id)

    assert (first.status, again.status, after.status) == ("cancelling", "cancelling", "cancelled")
    assert first == again
    assert first.cancelling_at is not None


@pytest.mark.parametrize("state", [BatchState.COMPLETED, BatchState.FAILED, BatchState.EXPIRED, BatchState.FINALIZING])
def test_what_has_ended_cannot_be_cancelled_and_is_asked_once(api: Api, worker: Worker, state: BatchState) -> None:
    made = create(api)
    end(worker, row_of(worker, made.id), state)
    calls: list[httpx2.Request] = []
    client = api.client(http_client=openai.DefaultHttpxClient(event_hooks={"request": [calls.append]}))

    with pytest.raises(openai.ConflictError) as caught:
        client.batches.cancel(made.id)

    assert caught.value.body == {
        "message": f"Cannot cancel a batch with status '{state.word}'.",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    assert len(calls) == 1
    assert client.batches.retrieve(made.id).status == state.word


def test_a_cancel_races_the_end_on_the_row(api: Api, worker: Worker) -> None:
    """Whoever comes first wins: a batch never leaves a final state, and a cancel that lost says so."""
    made = [create(api).id for _ in range(12)]
    rows = [row_of(worker, public_id) for public_id in made]
    client = api.client(max_retries=0)

    def cancel(public_id: str) -> str:
        try:
            return client.batches.cancel(public_id).status
        except openai.ConflictError:
            return "conflict"

    def finish(row_id: int) -> bool:
        with psycopg.connect(api.dsn, autocommit=True) as own:
            own.execute("SET ROLE sw_worker")
            return own.execute("UPDATE batch SET state = 4 WHERE id = %s AND state = 0", (row_id,)).rowcount == 1

    with ThreadPoolExecutor(8) as pool:
        cancels = [pool.submit(cancel, public_id) for public_id in made]
        ends = [pool.submit(finish, row.id) for row in rows]
        outcomes = [(c.result(), e.result()) for c, e in zip(cancels, ends, strict=True)]

    assert set(outcomes) <= {("cancelling", False), ("conflict", True)}
    states: dict[str, int] = dict(worker.execute("SELECT public_id, state FROM batch").fetchall())
    assert [states[public_id] for public_id in made] == [6 if won == "cancelling" else 4 for won, _ in outcomes]


def test_one_key_and_one_body_make_one_batch(api: Api, worker: Worker) -> None:
    file = a_file(api)
    forwards = json.dumps(BODY | {"input_file_id": file, "metadata": {"a": "1", "b": "2"}})
    backwards = json.dumps(dict(reversed(json.loads(forwards).items())) | {"metadata": {"b": "2", "a": "1"}}, indent=1)
    http = api.http(limits=httpx2.Limits(max_connections=50))

    def send(n: int) -> httpx2.Response:
        headers = {"idempotency-key": "k-1", "content-type": "application/json"}
        return http.post("/v1/batches", content=(forwards, backwards)[n % 2], headers=headers)

    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(send, range(50)))

    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert [reply.headers.get("idempotent-replayed") for reply in replies].count(None) == 1
    assert worker.execute("SELECT count(*) FROM batch").fetchone() == (1,)
    assert worker.execute("SELECT count(*) FROM file WHERE batch_id IS NOT NULL").fetchone() == (2,)


def test_one_key_and_another_body_is_a_conflict(api: Api) -> None:
    http, headers = api.http(), {"idempotency-key": "k-1"}
    http.post("/v1/batches", json=BODY, headers=headers)

    reply = http.post("/v1/batches", json=BODY | {"metadata": {"a": "other"}}, headers=headers)

    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert reply.headers["x-should-retry"] == "false"


def test_keys_of_two_tenants_do_not_meet(api: Api) -> None:
    headers = {"idempotency-key": "k-1"}
    one = api.http().post("/v1/batches", json=BODY, headers=headers).json()["id"]
    other = api.http(api.other_key).post("/v1/batches", json=BODY | {"priority": 1}, headers=headers)

    assert other.status_code == 200
    assert other.json()["id"] != one


@pytest.mark.parametrize("key", ["", "k" * 256, "two words"])
def test_a_wrong_key_is_refused(api: Api, key: str) -> None:
    reply = api.http().post("/v1/batches", json=BODY, headers={"idempotency-key": key})

    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "idempotency-key")


def test_a_webhook_of_its_own_is_made_with_the_batch(api: Api, worker: Worker) -> None:
    body = BODY | {"webhook": {"url": "https://example.com/hook?token=SECRET-CANARY"}}
    headers = {"idempotency-key": "with-hook"}

    first = api.http().post("/v1/batches", json=body, headers=headers).json()
    again = api.http().post("/v1/batches", json=body, headers=headers).json()

    assert first["webhook"]["signing_secret"].startswith("whsec_")
    assert (again["id"], again["webhook"]) == (first["id"], first["webhook"])
    assert "whsec_" not in api.http().get(f"/v1/batches/{first['id']}").text
    rows = worker.execute("SELECT public_id, batch_id, event_types, url FROM endpoint").fetchall()
    assert [row[:2] for row in rows] == [(first["webhook"]["id"], row_of(worker, first["id"]).id)]
    assert len(rows[0][2]) == 4
    assert b"SECRET-CANARY" not in rows[0][3]


@pytest.mark.parametrize("grace_seconds", [0, 3600])
def test_a_resend_does_not_bring_a_rotated_secret_back(api: Api, grace_seconds: int) -> None:
    http, headers = api.http(), {"idempotency-key": "with-hook"}
    body = BODY | {"webhook": {"url": "https://example.com/hook"}}
    hook = http.post("/v1/batches", json=body, headers=headers).json()["webhook"]
    path = f"/v1/webhook_endpoints/{hook['id']}"
    assert http.post(f"{path}/rotate_secret", json={"grace_seconds": grace_seconds}).status_code == 200

    again = http.post("/v1/batches", json=body, headers=headers).json()
    assert again["webhook"] == {"id": hook["id"], "signing_secret": None}
    http.delete(path)
    assert http.post("/v1/batches", json=body, headers=headers).json()["webhook"] is None


def test_another_key_of_the_tenant_does_not_get_the_secret(api: Api) -> None:
    body, headers = BODY | {"webhook": {"url": "https://example.com/hook"}}, {"idempotency-key": "with-hook"}
    first = api.http().post("/v1/batches", json=body, headers=headers).json()

    other = api.admin(lambda connection: keys.create(connection, "alpha")).text
    again = api.http(other).post("/v1/batches", json=body, headers=headers).json()

    assert (again["id"], again["webhook"]) == (first["id"], {"id": first["webhook"]["id"], "signing_secret": None})


@pytest.mark.parametrize("url", ["ftp://example.com", "https://user@example.com/", "https://127.0.0.1/", ""])
def test_a_wrong_webhook_makes_no_batch(api: Api, worker: Worker, url: str) -> None:
    reply = api.http().post("/v1/batches", json=BODY | {"webhook": {"url": url}})

    assert reply.status_code == 400
    assert worker.execute("SELECT count(*) FROM batch").fetchone() == (0,)
