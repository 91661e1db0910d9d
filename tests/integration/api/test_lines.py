"""Lines one by one: pages of results, and single requests."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx2
import psycopg

from slackwater.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker, row_of, run, store
from tests.integration.api.test_cases import create
from tests.integration.api.work import add_echo, at_work, ended, plan_all
from tests.scenario import chat_line
from tests.unit.reader.test_cases import CASES


def pages(http: httpx2.Client, batch_id: str, **query: Any) -> list[bytes]:
    """The lines of every page, each asked for by the id of the line before."""
    lines: list[bytes] = []
    while True:
        reply = http.get(f"/v1/batches/{batch_id}/results", params=query)
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("application/jsonl")
        new = reply.content.splitlines(keepends=True)
        lines += new
        if new:
            assert json.loads(new[-1])["id"] == reply.headers["x-last-id"]
        if reply.headers["x-has-more"] == "false":
            return lines
        assert new
        query["after"] = reply.headers["x-last-id"]


def test_pages_resume_at_any_line(api: Api, worker: Worker) -> None:
    batch_id = create(api, b"{}")
    row = row_of(worker, batch_id)
    run(worker, row, 700)
    stored: dict[int, tuple[int, bytes]] = {}
    with worker.transaction():
        for line in range(3, 703):
            body = b'{"id":"batch_req_%x_%x","x":1.0e+2}\n' % (row.id, line)
            stored[line] = (line % 5 % 4, body)
            store(worker, row, line, body, outcome=line % 5 % 4)
    http = api.http()
    everything = [body for _, body in stored.values()]

    for limit in (1000, 700, 97):
        assert pages(http, batch_id, limit=limit) == everything
    for outcome, status in enumerate(("succeeded", "failed", "expired", "cancelled")):
        wanted = [body for kind, body in stored.values() if kind == outcome]
        assert pages(http, batch_id, limit=100, status=status) == wanted
    after = json.loads(everything[400])["id"]
    assert pages(http, batch_id, after=after) == everything[401:]


def test_cursors_and_filters_that_are_none_are_refused(api: Api, worker: Worker) -> None:
    batch_id, other = create(api, b"{}"), create(api, b"{}")
    foreign = f"batch_req_{row_of(worker, other).id:x}_1"
    http, path = api.http(), f"/v1/batches/{batch_id}/results"

    assert (http.get(path).content, http.get(path).headers["x-has-more"]) == (b"", "false")
    for query in ("after=1", f"after={foreign}", "after=", "limit=0", "limit=10001", "status=queued"):
        reply = http.get(f"{path}?{query}")
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, query.partition("=")[0])
    assert api.http(api.other_key).get(path).status_code == 404


def test_a_request_is_found_by_whatever_id_it_has(api: Api, api_settings: Settings) -> None:
    """Paths, line breaks, formulas, both Unicode forms, and the ids of lines that were refused."""
    add_echo(api.dsn)
    data = (CASES / "IN-15-custom-id-shapes.jsonl").read_bytes()
    refused = b'{"custom_id":"no-such \\u2028 model","method":"POST","url":"/v1/chat/completions","body":{"model":"x","messages":[]}}\n'
    batch_id = create(api, data + refused, on_invalid="skip")
    http = api.http()
    with at_work(api_settings):
        ended(http, batch_id)
    lines = {line["id"]: line for line in map(json.loads, pages(http, batch_id))}
    named = [line for line in lines.values() if line["custom_id"] is not None]
    assert len(named) >= 9

    for line in named:
        seen = http.get(f"/v1/batches/{batch_id}/requests/{quote(line['custom_id'], safe='')}").json()
        assert (seen["id"], seen["custom_id"], seen["result"]) == (line["id"], line["custom_id"], line)
        is_refused = line["error"] is not None
        assert (seen["status"], seen["attempts"]) == (("failed", 0) if is_refused else ("succeeded", 1))


def test_a_request_is_queued_then_running_then_ended(api: Api, api_settings: Settings, worker: Worker) -> None:
    batch_id = create(api, b"\n".join([chat_line("a"), chat_line("b/c")]))
    http, path = api.http(), f"/v1/batches/{batch_id}/requests"
    assert http.get(f"{path}/a").status_code == 404
    plan_all(api_settings)
    row = row_of(worker, batch_id)

    queued = http.get(f"{path}/b%2Fc").json()
    worker.execute("UPDATE segment SET attempts = 1")
    again = http.get(f"{path}/b%2Fc").json()
    worker.execute("DELETE FROM segment")
    worker.execute(
        "INSERT INTO lease (token, worker_id, tenant_id, batch_id, model_id, first, n, rescues, deaths, attempts, deferrals, expires_at)"
        " VALUES (gen_random_uuid(), 1, %s, %s, 1, 0, 2, 0, 0, 1, 0, now() + interval '1 min')",
        (row.tenant_id, row.id),
    )
    running = http.get(f"{path}/b%2Fc").json()
    body = b'{"custom_id":"b/c","n":1.0e+2}\n'
    store(worker, row, 2, body)
    done = http.get(f"{path}/b/c")

    assert [r["status"] for r in (queued, again, running)] == ["queued", "queued", "running"]
    assert [r["attempts"] for r in (queued, again, running)] == [0, 1, 2]
    assert (queued["line"], queued["model"], queued["result"]) == (2, "tiny-chat", None)
    assert done.json()["status"] == "succeeded"
    assert done.content.endswith(b'"result": ' + body.rstrip() + b"}")
    for unknown in ("B/c", "a%00", "b", "%FF"):
        assert http.get(f"{path}/{unknown}").json()["error"]["param"] == "custom_id"
    assert api.http(api.other_key).get(f"{path}/a").status_code == 404


def test_a_page_whose_lines_vanish_breaks_off(api: Api, worker: Worker) -> None:
    """What is purged under a reader must not look like a shorter page."""
    batch_id = create(api, b"{}")
    row = row_of(worker, batch_id)
    run(worker, row, 40)
    for line in range(1, 41):
        store(worker, row, line, b"x" * 300_000 + b"\n")
    with api.http().stream("GET", f"/v1/batches/{batch_id}/results") as reply:
        pieces = reply.iter_bytes()
        read = len(next(pieces))
        with psycopg.connect(api.dsn, autocommit=True) as owner:
            owner.execute("DELETE FROM result")
        try:
            read += sum(len(piece) for piece in pieces)
        except httpx2.HTTPError:
            return
    raise AssertionError(f"{read} bytes looked like a whole page")
