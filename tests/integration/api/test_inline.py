"""Batches that bring their requests in the body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from slackwater.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.process import api_process
from tests.integration.api.rows import Worker
from tests.integration.api.work import add_echo, at_work, ended, plan_all

HEAD = b'{"endpoint":"/v1/chat/completions","completion_window":"24h","requests":['
JSON = {"content-type": "application/json"}
BODIES = [
    b'{"model":"tiny-chat", "messages":[{"role":"user","content":"\\u00e9 \xc3\xa9 \\/ ]},{"}],"seed":1.0e+2,"zz":null,"top_p":0.10}',
    b'{ "messages" : [ {"content":"\xe2\x80\xa8","role":"user"} ] , "big":12345678901234567890123, "model" : "tiny-chat" }',
    b'{"model":"tiny-chat","messages":[{"role":"user","content":""}],\n "pretty": [\n  1,\n  2\n ]\n}',
]


def element(n: int, body: bytes) -> bytes:
    return b'{"custom_id":"r%d","method":"POST","url":"/v1/chat/completions","body":%s}' % (n, body)


def send(api: Api, *elements: bytes, **headers: str) -> httpx2.Response:
    return api.http().post("/v1/batches", content=HEAD + b",\n ".join(elements) + b"]}", headers=JSON | headers)


def test_the_bytes_of_each_body_reach_the_engine(api: Api, api_settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    add_echo(api.dsn, log_path=str(log))

    made = send(api, *[element(n, body) for n, body in enumerate(BODIES)])

    assert made.status_code == 200
    with at_work(api_settings):
        seen = ended(api.http(), made.json()["id"])
    assert seen["request_counts"]["completed"] == 3
    ran = {bytes.fromhex(line.split()[1]) for line in log.read_text().splitlines()}
    assert ran == {body.replace(b"\n", b"\r") for body in BODIES}
    stored = api.client().files.content(seen["input_file_id"]).read()
    assert stored.count(b"\n") == 3
    assert api.client().files.retrieve(seen["input_file_id"]).purpose == "batch"


def test_what_is_wrong_inside_is_told_by_line(api: Api, api_settings: Settings) -> None:
    good = element(1, BODIES[0])
    made = send(api, good, b'{"custom_id":}', b"5", element(1, BODIES[0]), element(2, b'{"a":1,"a":2}')).json()
    assert made["status"] == "validating"

    plan_all(api_settings)

    data = api.http().get(f"/v1/batches/{made['id']}").json()["errors"]["data"]
    assert [(e["line"], e["code"]) for e in data] == [
        (2, "invalid_json_line"),
        (3, "invalid_json_line"),
        (4, "duplicate_custom_id"),
        (5, "duplicate_key"),
    ]


FAULTS: list[tuple[bytes, int, str | None, str | None]] = [
    (b"[]", 400, "invalid_value", "requests"),
    (b"7", 400, "invalid_type", "requests"),
    (b'[{"a":1},]', 400, "invalid_json", None),
    (b'[{"a":1}', 400, "invalid_json", None),
    (b'[1],"requests":[2]', 400, "duplicate_key", None),
    (b'[1],"input_file_id":"file-1"', 400, "invalid_value", "requests"),
    (b'[1],"surprise":1', 400, "unknown_parameter", "surprise"),
    (b'[1],"priority":1000', 400, "invalid_value", "priority"),
    (b"null", 400, "missing_required_parameter", "input_file_id"),
    (b'[1],"webhook":{"url":"https://127.0.0.1/"}', 400, None, None),
]


def test_a_refused_body_leaves_nothing(api: Api, worker: Worker) -> None:
    http, head = api.http(), HEAD.removesuffix(b"[")
    for value, status, code, param in FAULTS:
        reply = http.post("/v1/batches", content=head + value + b"}", headers=JSON)
        error = reply.json()["error"]
        assert reply.status_code == status, value
        assert code is None or (error["code"], error["param"]) == (code, param), value
    for table in ("file", "file_chunk", "batch", "idempotency"):
        assert worker.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,), table


def test_a_key_counts_for_requests_in_line(api: Api, worker: Worker) -> None:
    key = {"idempotency-key": "k-1"}
    first = send(api, element(1, BODIES[0]), **key)
    again = send(api, element(1, BODIES[0]), **key)
    other = send(api, element(2, BODIES[0]), **key)

    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert worker.execute("SELECT count(*) FROM file WHERE batch_id IS NULL").fetchone() == (1,)


def test_a_body_over_the_limit_leaves_nothing(api: Api, worker: Worker, api_settings: Settings) -> None:
    assert api_settings.max_inline_bytes == 32 << 20

    def endless(piece: bytes) -> Iterator[bytes]:
        yield HEAD
        for _ in range(40):
            yield piece * (1 << 20)

    for piece in (b" ", b"9"):
        reply = api.http().post("/v1/batches", content=endless(piece), headers=JSON)
        assert reply.status_code == 413
    declared = api.http().post("/v1/batches", content=b" " * (33 << 20), headers=JSON)
    assert declared.status_code == 413
    assert worker.execute("SELECT count(*) FROM file_chunk").fetchone() == (0,)


def test_thirty_megabytes_in_line_cost_little_memory(dsn: str, api: Api, worker: Worker) -> None:
    body: dict[str, Any] = {"model": "tiny-chat", "messages": [{"role": "user", "content": "x" * 2000}]}
    elements = [element(n, json.dumps(body).encode()) for n in range(14_000)]
    with api_process(dsn) as process:
        client = httpx2.Client(base_url=process.url, headers={"authorization": f"Bearer {api.key}"}, timeout=120)
        with client:
            client.get("/v1/batches")
            idle = process.memory("VmRSS")
            reply = client.post("/v1/batches", content=HEAD + b",".join(elements) + b"]}", headers=JSON)
            assert reply.status_code == 200
            assert process.memory() - idle < 60 << 20
    sizes = worker.execute("SELECT sum(octet_length(data))::bigint FROM file_chunk").fetchone()
    assert sizes == (sum(len(e) + 1 for e in elements),)


@pytest.mark.parametrize("content_type", ["text/plain", "application/jsonl"])
def test_only_json_is_read(api: Api, content_type: str) -> None:
    reply = api.http().post("/v1/batches", content=HEAD + b"1]}", headers={"content-type": content_type})

    assert reply.status_code == 415
