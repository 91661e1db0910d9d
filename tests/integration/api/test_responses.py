"""Responses in the background, with the real client: they are made once, end once, and tell it to whoever asks, whenever."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import psycopg
import pytest

from slackwater.settings import Settings
from tests.integration.api.conftest import MODEL, Api
from tests.integration.api.responding import LOG, begin, ended, many
from tests.integration.api.rows import Worker
from tests.integration.api.work import add_echo, at_work
from tests.waiting import until


def test_one_is_made_polled_and_done(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    client = api.client()
    begun = begin(client, "echo:text=hello", metadata={"a": "b"}, instructions="Be short.", temperature=0.5)

    assert (begun.id[:5], begun.status, begun.background, begun.output) == ("resp_", "queued", True, [])
    assert (begun.error, begun.usage, begun.completed_at) == (None, None, None)
    assert begun.model_extra["waiting_reason"]["code"] == "validating"
    with at_work(api_settings):
        done = ended(client, begun.id)

    assert (done.id, done.status, done.output_text, done.created_at) == (
        begun.id,
        "completed",
        "hello",
        begun.created_at,
    )
    assert (done.metadata, done.instructions, done.temperature) == ({"a": "b"}, "Be short.", 0.5)
    assert done.usage.output_tokens == 1
    assert done.completed_at >= done.created_at
    assert client.responses.retrieve(begun.id).model_dump() == done.model_dump()


def test_it_is_in_no_list_and_no_batch(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    client, http = api.client(), api.http()
    begun = begin(client)
    with at_work(api_settings):
        ended(client, begun.id)

    for path in ("/v1/batches", "/v1/files", "/v1/files?purpose=batch_output"):
        assert http.get(path).json()["data"] == []
    for path in (f"/v1/batches/{begun.id}", f"/v1/batches/{begun.id}/events", f"/v1/batches/{begun.id}/results"):
        assert http.get(path).status_code == 404
    assert http.post(f"/v1/batches/{begun.id}/cancel").status_code == 404
    assert http.post(f"/v1/batches/{begun.id}/retry").status_code == 404


def test_the_engine_gets_the_clients_bytes(api: Api, api_settings: Settings, tmp_path: Any) -> None:
    log = tmp_path / "engine.log"
    add_echo(api.dsn, log_path=str(log))
    body = (
        b'{ "temperature":1.0,"model":"tiny-chat",\n"background":true, "stream" : false,'
        b' "input":"\\u00e9\xc3\xa9","store":true, "background_options":{"completion_window":"1h"},"x":12345678901234567890 }'
    )
    http = api.http()
    made = http.post("/v1/responses", content=body, headers={"content-type": "application/json"}).json()
    with at_work(api_settings):
        until(lambda: http.get(f"/v1/responses/{made['id']}").json()["status"] == "completed")

    sent = bytes.fromhex(log.read_text().split()[1])
    assert sent == b'{ "temperature":1.0,"model":"tiny-chat",\r  "input":"\\u00e9\xc3\xa9", "x":12345678901234567890 }'


def test_cancelling_is_final_and_may_be_asked_twice(api: Api, api_settings: Settings, worker: Worker) -> None:
    add_echo(api.dsn, latency_seconds=30)
    client = api.client()
    queued, running_one = begin(client), begin(client)
    assert client.responses.cancel(queued.id).status == "cancelled"
    with at_work(api_settings):
        until(lambda: client.responses.retrieve(running_one.id).status == "in_progress")
        first = client.responses.cancel(running_one.id)
        second = client.responses.cancel(running_one.id)
        until(lambda: many(worker, "batch WHERE state = 7") == 2)
        third = client.responses.cancel(running_one.id)

    assert first.status == second.status == third.status == "cancelled"
    assert (third.output, third.error, third.completed_at) == ([], None, None)
    assert client.responses.retrieve(queued.id).status == "cancelled"


def test_a_completed_one_is_returned_when_it_is_cancelled(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    client = api.client(max_retries=0)
    begun = begin(client)
    with at_work(api_settings):
        done = ended(client, begun.id)

    assert client.responses.cancel(begun.id).model_dump() == done.model_dump()


def test_a_deleted_one_is_gone_and_ends(api: Api, api_settings: Settings, worker: Worker) -> None:
    add_echo(api.dsn, latency_seconds=30)
    client, http = api.client(), api.http()
    begun = begin(client)
    with at_work(api_settings):
        until(lambda: client.responses.retrieve(begun.id).status == "in_progress")
        reply = http.delete(f"/v1/responses/{begun.id}")
        assert reply.json() == {"id": begun.id, "object": "response", "deleted": True}
        until(lambda: many(worker, "batch WHERE state = 7") == 1)
    client.responses.delete(begin(client).id)
    for act in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            act(begun.id)
        assert caught.value.type == "invalid_request_error"
    assert http.get(f"/v1/responses/{begun.id}?stream=true").status_code == 404
    assert http.get(f"/v1/responses/{begun.id}/input_items").status_code == 404


def test_what_it_was_asked_is_listed(api: Api) -> None:
    client = api.client()
    said: Any = [{"role": "user", "content": f"line {n}"} for n in range(25)]
    listed: list[Any] = list(client.responses.input_items.list(begin(client, said).id, limit=10, order="asc"))

    assert [item.content[0].text for item in listed] == [one["content"] for one in said]
    assert len({item.id for item in listed}) == 25
    only: Any = client.responses.input_items.list(begin(client, "just so").id)
    assert [(item.role, item.content[0].text) for item in only.data] == [("user", "just so")]
    assert only.has_more is False


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [("status=400", "invalid_prompt", "scripted"), ("cut", "server_error", "")],
    ids=["refused", "broken"],
)
def test_one_that_fails_says_why(api: Api, api_settings: Settings, script: str, code: str, says: str) -> None:
    add_echo(api.dsn)
    client = api.client()
    begun = begin(client, f"echo:{script}", extra_body={"background_options": {"completion_window": "1h"}})
    with at_work(api_settings):
        failed = ended(client, begun.id)
        events = list(client.responses.retrieve(begun.id, stream=True))

    assert (failed.status, failed.error.code, failed.output) == ("failed", code, [])
    assert says in failed.error.message
    assert [events[-1].type, events[-1].response.error.code] == ["response.failed", code]  # type: ignore[union-attr]


def test_one_whose_window_ends_fails(api: Api, api_settings: Settings) -> None:
    client = api.client()
    begun = begin(client, extra_body={"background_options": {"completion_window": "1s"}})
    with at_work(api_settings, with_worker=False):
        failed = ended(client, begun.id)

    assert (failed.status, failed.error.code) == ("failed", "server_error")
    assert "completion window" in failed.error.message


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({"model": "nobody"}, 404, "model", "model_not_found"),
        ({"model": 7}, 400, "model", "invalid_type"),
        ({"input": None}, 400, "input", "invalid_request"),
        ({"input": 7}, 400, "input", "invalid_type"),
        ({"priority": 5}, 400, "priority", "unsupported_parameter"),
        ({"kv_transfer_params": {}}, 400, "kv_transfer_params", "unsupported_parameter"),
        ({"max_output_tokens": 0}, 400, "max_output_tokens", "invalid_value"),
        ({"metadata": {"a": 1}}, 400, "metadata.a", "invalid_type"),
        ({"stream": "yes"}, 400, "stream", "invalid_type"),
        ({"background": {}}, 400, "background", "invalid_type"),
        ({"background": "true"}, 400, "background", "invalid_type"),
        ({"background_options": {"completion_window": "soon"}}, 400, "background_options.completion_window", "invalid_value"),
        ({"background_options": {"continuation_id": "a"}}, 400, "background_options.continuation_id", "unknown_parameter"),
        ({"webhook": {"url": "https://example.com"}}, 400, "webhook", "invalid_value"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_once(
    api: Api, worker: Worker, body: dict[str, Any], status: int, param: str, code: str
) -> None:
    reply = api.http().post("/v1/responses", json={"model": MODEL, "input": "hi", "background": True} | body)

    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["code"]) == (status, param, code), error
    assert many(worker, "batch") == 0


def test_bad_json_is_refused(api: Api) -> None:
    for body in (
        b'{"background":true,"model":"tiny-chat","input":"a","input":"b"}',
        b'{"background":true,"a":NaN}',
        b"[",
    ):
        assert api.http().post("/v1/responses", content=body).status_code == 400


def test_another_tenant_sees_nothing(api: Api) -> None:
    mine = begin(api.client())
    http = api.http(api.other_key)
    nobody = "resp_" + "0" * 32
    for method, path in (
        ("GET", "/v1/responses/{}"),
        ("GET", "/v1/responses/{}?stream=true"),
        ("POST", "/v1/responses/{}/cancel"),
        ("DELETE", "/v1/responses/{}"),
        ("GET", "/v1/responses/{}/input_items"),
    ):
        theirs, none = (http.request(method, path.format(id_)) for id_ in (mine.id, nobody))
        assert (theirs.status_code, theirs.content) == (404, none.content)
    assert api.client().responses.retrieve(mine.id).status == "queued"


def test_a_key_and_a_resend_make_one(api: Api, worker: Worker) -> None:
    client, http = api.client(), api.http()
    key = {"Idempotency-Key": "once"}
    first = begin(client, extra_headers=key)
    again = client.responses.with_raw_response.create(model=MODEL, input="hi", background=True, extra_headers=key)
    assert (again.parse().id, again.headers["idempotent-replayed"]) == (first.id, "true")
    with pytest.raises(openai.ConflictError) as caught:
        begin(client, "other", extra_headers=key)
    assert caught.value.code == "idempotency_key_reused"
    body = {"model": MODEL, "input": "resent", "background": True}
    made = [http.post("/v1/responses", json=body, headers={"x-stainless-retry-count": n}).json()["id"] for n in "00"]
    until(lambda: many(worker, "idempotency WHERE key IS NULL AND replied_at IS NULL") == 0)
    answered = http.post("/v1/responses", json=body, headers={"x-stainless-retry-count": "1"})
    assert len({*made, answered.json()["id"]}) == 3
    until(lambda: many(worker, "idempotency WHERE key IS NULL AND replied_at IS NULL") == 0)
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute("UPDATE idempotency SET replied_at = NULL WHERE object_id = %s", (made[1],))
    resent = http.post("/v1/responses", json=body, headers={"x-stainless-retry-count": "2"})
    assert (resent.json()["id"], resent.headers["idempotent-replayed"]) == (made[1], "true")


def test_a_stream_that_was_left_is_the_same_when_it_is_sent_again(api: Api, worker: Worker) -> None:
    body = {"model": MODEL, "input": "hi", "background": True, "stream": True}
    with api.http().stream("POST", "/v1/responses", json=body) as reply:
        first = next(line for line in reply.iter_lines() if line.startswith("data: "))
    again = {"x-stainless-retry-count": "1"}
    with api.http().stream("POST", "/v1/responses", json=body, headers=again) as reply:
        assert reply.headers["idempotent-replayed"] == "true"
        assert next(line for line in reply.iter_lines() if line.startswith("data: ")) == first
    assert many(worker, "batch") == 1


def test_fifty_at_once_are_one(api: Api, worker: Worker) -> None:
    body = {"model": MODEL, "input": "hi", "background": True}
    headers = {"authorization": f"Bearer {api.key}", "idempotency-key": "k"}
    with httpx2.Client(headers=headers, timeout=60) as http, ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(lambda _: http.post(f"{api.url}/v1/responses", json=body), range(50)))

    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert (many(worker, "batch"), many(worker, "file"), many(worker, "file_chunk")) == (1, 1, 1)


def test_scopes_are_those_of_batches(api: Api) -> None:
    from slackwater.tenancy import keys

    def key_for(scope: str) -> str:
        return str(api.admin(lambda connection: keys.create(connection, "alpha", scopes=[scope])).text)

    made = {scope: key_for(scope) for scope in ("batches:read", "batches:write", "live:write")}
    body = {"model": MODEL, "input": "hi", "background": True}
    codes = {scope: api.http(key).post("/v1/responses", json=body).status_code for scope, key in made.items()}
    assert codes == {"batches:read": 403, "batches:write": 200, "live:write": 403}
    live = {
        scope: api.http(key).post("/v1/responses", json=body | {"background": False}).status_code
        for scope, key in made.items()
    }
    assert live == {"batches:read": 403, "batches:write": 403, "live:write": 503}
    mine = begin(api.client())
    reads = {scope: api.http(key).get(f"/v1/responses/{mine.id}").status_code for scope, key in made.items()}
    assert reads == {"batches:read": 200, "batches:write": 403, "live:write": 403}


def test_its_events_go_to_the_outbox_with_its_state(api: Api, api_settings: Settings, worker: Worker) -> None:
    add_echo(api.dsn)
    client = api.client()
    good, bad, gone = begin(client, metadata={"n": "1"}), begin(client, "echo:status=400"), begin(client)
    client.responses.cancel(gone.id)
    with at_work(api_settings):
        ended(client, good.id)
        ended(client, bad.id)
        until(lambda: many(worker, "batch WHERE state = 7") == 1)

    rows = worker.execute("SELECT type, body FROM event ORDER BY type").fetchall()
    told = {kind: json.loads(body)["data"] for kind, body in rows}
    assert {kind: data["id"] for kind, data in told.items()} == {
        "response.cancelled": gone.id,
        "response.completed": good.id,
        "response.failed": bad.id,
    }
    assert told["response.completed"]["metadata"] == {"n": "1"}
    assert told["response.completed"]["usage"]["output_tokens"] == 1


def test_it_survives_the_death_of_its_worker(api: Api, api_settings: Settings, worker: Worker) -> None:
    """The first worker is silenced while it runs; its lease is over, and another one brings the answer."""
    add_echo(api.dsn, latency_seconds=3)
    settings = api_settings.model_copy(update={"lease_seconds": 2.0})
    client = api.client()
    begun = begin(client, "echo:text=late")
    stream = client.responses.retrieve(begun.id, stream=True)
    with at_work(settings):
        until(lambda: many(worker, "lease") == 1)
        worker.execute("UPDATE lease SET token = gen_random_uuid(), expires_at = now() - interval '1 second'")
        events = list(stream)

    assert [event.type for event in events] == LOG
    assert client.responses.retrieve(begun.id).output_text == "late"
    assert many(worker, "result") == 1


def test_what_is_gone_leaves_only_its_cost(api: Api, api_settings: Settings, worker: Worker) -> None:
    from scheduler.duties import purge

    add_echo(api.dsn)
    client = api.client()
    kept, short, deleted = begin(client), begin(client, store=False), begin(client)
    with at_work(api_settings):
        for one in (kept, short, deleted):
            ended(client, one.id)
    client.responses.delete(deleted.id)
    row = worker.execute("SELECT gone_at - completed_at FROM batch WHERE public_id = %s", (short.id,)).fetchone()
    assert row is not None
    assert row[0].total_seconds() == 3600
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute("UPDATE batch SET gone_at = gone_at - interval '2 hours' WHERE gone_at IS NOT NULL")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(short.id)
    purge.step(worker, api_settings)

    assert client.responses.retrieve(kept.id).status == "completed"
    left = {table: many(worker, table) for table in ("batch", "file", "file_chunk", "request", "result", "batch_model")}
    assert set(left.values()) == {1}, left
    assert many(worker, "ledger") == 3
