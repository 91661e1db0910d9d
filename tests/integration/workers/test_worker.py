"""What a worker does with answers, refusals, illness and the end of a batch, on a real database and a real upstream."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from slackwater import ids
from slackwater.lifecycle import BatchState
from tests.integration.workers.serving import ended, serving
from tests.scenario import MODEL, Scenario, chat_line
from tests.upstream import Upstream
from tests.waiting import until_async


@pytest.fixture
def scenario(dsn: str) -> Iterator[Scenario]:
    scenario = Scenario.on(dsn)
    yield scenario
    scenario.close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def served_by(scenario: Scenario, upstream: Upstream, upstream_name: str = MODEL) -> None:
    insert = "INSERT INTO instance (public_id, name, engine, url) VALUES (%s, 'up', 'openai_http', %s) RETURNING id"
    instance_id = scenario.one(insert, ids.new("inst_"), upstream.url)
    scenario.connection.execute(
        "INSERT INTO instance_model VALUES (%s, %s, %s)", (instance_id, scenario.models[MODEL], upstream_name)
    )


async def test_usage_cost_and_ledger_are_counted_once(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    scenario.connection.execute(
        "INSERT INTO price (model_id, input_picodollars, cached_picodollars, output_picodollars) VALUES (%s, 100, 10, 1000)",
        (scenario.models[MODEL],),
    )
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(5)])
    async with serving(dsn, "up"):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    counts = scenario.counts(batch_id)
    assert (counts.succeeded, counts.prompt_tokens, counts.completion_tokens, counts.cached_known) == (5, 35, 5, 0)
    assert counts.cost_picodollars == 5 * (7 * 100 + 1000)
    ledger = "SELECT sum(requests), sum(prompt_tokens), sum(cost_picodollars) FROM ledger"
    assert scenario.connection.execute(ledger.encode()).fetchone() == (5, 35, counts.cost_picodollars)


async def test_the_upstream_gets_the_clients_bytes(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    served_by(scenario, upstream)
    body = b'{ "temperature":1.0 ,"model":"tiny-chat","messages":[{"content":"\\u00e9\xc3\xa9","role":"user"}],"big":12345678901234567890 }'
    line = b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":' + body + b"}"
    batch_id = scenario.batch([line])
    async with serving(dsn, "up"):
        await ended(scenario, batch_id)

    assert upstream.bodies == [body]


async def test_only_the_published_members_change(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    served_by(scenario, upstream, "org/real-name")
    body = b'{"stream":false, "model":"tiny-chat","a":1.0,"messages":[{"role":"user","content":"x"}],"store":true}'
    batch_id = scenario.batch([b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":' + body + b"}"])
    async with serving(dsn, "up"):
        await ended(scenario, batch_id)

    assert upstream.bodies == [
        b' "model":"org/real-name","a":1.0,"messages":[{"role":"user","content":"x"}]}'.join([b"{", b""])
    ]


async def test_a_refused_line_fails_alone(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    async def refuse(_: Any, body: bytes) -> web.StreamResponse:
        if b"bad" in body:
            return web.json_response(
                {"error": {"message": "no", "type": "t", "param": "p", "code": "context_length_exceeded"}}, status=400
            )
        return web.Response(body=b'{"ok":true}')

    upstream.handler = refuse
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line("good"), chat_line("wrong", "bad")])
    async with serving(dsn, "up"):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    by_name = {line["custom_id"]: line for line in scenario.lines(batch_id)}
    assert by_name["wrong"]["response"]["status_code"] == 400
    assert by_name["wrong"]["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert by_name["good"]["response"]["body"] == {"ok": True}
    assert len(upstream.bodies) == 2


async def test_capacity_burns_no_attempt(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    seen: Counter[bytes] = Counter()

    async def busy_five_times(_: Any, body: bytes) -> web.StreamResponse:
        seen[body] += 1
        return (
            web.Response(status=503, headers={"Retry-After": "0.05"}) if seen[body] <= 5 else web.Response(body=b"{}")
        )

    upstream.handler = busy_five_times
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line("a")])
    async with serving(dsn, "up", max_attempts=2):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    assert scenario.counts(batch_id).succeeded == 1
    assert scenario.one("SELECT attempt FROM result") == 1
    assert scenario.one("SELECT count(*) FROM attempt WHERE why = 'capacity' AND http = 503") == 5


async def test_broken_answers_burn_attempts_and_then_fail(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    async def prose(_: Any, __: bytes) -> web.StreamResponse:
        return web.Response(text="<html>it works</html>")

    upstream.handler = prose
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line("a")])
    async with serving(dsn, "up", max_attempts=2):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    (line,) = scenario.lines(batch_id)
    assert (line["response"], line["error"]["code"]) == (None, "bad_upstream")
    assert len(upstream.bodies) == 2


async def test_a_missing_model_pauses_the_instance_and_burns_nothing(
    dsn: str, scenario: Scenario, upstream: Upstream
) -> None:
    async def missing(_: Any, __: bytes) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no such model"}}, status=404)

    upstream.handler, upstream.models = missing, ()
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line("a")])
    paused = "SELECT count(*) FROM instance_model WHERE paused_until > now() AND paused_reason = 'model_missing'"
    async with serving(dsn, "up"):
        await until_async(lambda: scenario.one(paused) == 1)
        await until_async(lambda: scenario.one("SELECT count(*) FROM decision WHERE reason = 'model_paused'") > 0)

    assert scenario.counts(batch_id).done == 0
    assert scenario.one("SELECT sum(attempts) FROM segment") == 0


async def test_a_404_of_a_known_model_is_the_lines_fault(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    async def missing(_: Any, __: bytes) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no such file"}}, status=404)

    upstream.handler = missing
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line("a")])
    async with serving(dsn, "up"):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    assert scenario.lines(batch_id)[0]["response"]["status_code"] == 404


async def test_a_dead_upstream_holds_and_work_waits(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    served_by(scenario, upstream)
    scenario.connection.execute("UPDATE instance SET url = 'http://127.0.0.1:9'")
    batch_id = scenario.batch([chat_line("a")])
    async with serving(dsn, "up"):
        await until_async(lambda: scenario.one("SELECT count(*) FROM decision WHERE reason = 'no_signal'") > 1)

    assert scenario.counts(batch_id).done == 0
    assert scenario.one("SELECT sum(n) FROM segment") == 1


async def test_cancelling_aborts_what_runs_and_keeps_what_is_done(
    dsn: str, scenario: Scenario, upstream: Upstream
) -> None:
    async def some(_: Any, body: bytes) -> web.StreamResponse:
        if b"slow" in body:
            await asyncio.sleep(600)
        return web.Response(body=b'{"ok":true}')

    upstream.handler = some
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line("fast"), chat_line("s1", "slow"), chat_line("s2", "slow")])
    async with serving(dsn, "up"):
        await until_async(lambda: len(upstream.bodies) == 3 and scenario.counts(batch_id).succeeded == 1)
        scenario.connection.execute("UPDATE batch SET state = 6, cancelling_at = now() WHERE id = %s", (batch_id,))
        assert await ended(scenario, batch_id) is BatchState.CANCELLED
        assert await asyncio.to_thread(upstream.aborted.wait, 20)

    counts = scenario.counts(batch_id)
    assert (counts.succeeded, counts.cancelled) == (1, 2)
    aborted = "SELECT count(*), min(wasted_tokens) > 0 FROM attempt WHERE why = 'aborted'"
    assert scenario.connection.execute(aborted.encode()).fetchone() == (2, True)
    assert {line["custom_id"] for line in scenario.lines(batch_id)} == {"fast", "s1", "s2"}


async def test_live_requests_waiting_hold_the_next_claims(dsn: str, scenario: Scenario) -> None:
    instance_id = scenario.instance()
    scenario.connection.execute("INSERT INTO gateway (id, host, pid) VALUES ('g', 'h', 1)")
    insert = "INSERT INTO live_load (instance_id, gateway_id, running, waiting) VALUES (%s, 'g', 0, 1)"
    scenario.connection.execute(insert.encode(), (instance_id,))
    batch_id = scenario.batch([chat_line("a")])

    def has_held() -> bool:
        scenario.connection.execute("UPDATE live_load SET at = now()")
        held: int = scenario.one("SELECT count(*) FROM decision WHERE reason = 'live_waiting'")
        return held > 0

    def is_done() -> bool:
        scenario.connection.execute("UPDATE live_load SET at = now(), waiting = 0")
        return scenario.counts(batch_id).done == 1

    async with serving(dsn):
        await until_async(has_held)
        assert scenario.counts(batch_id).done == 0
        await until_async(is_done)
        assert await ended(scenario, batch_id) is BatchState.COMPLETED


async def test_silent_live_figures_hold_too(dsn: str, scenario: Scenario) -> None:
    scenario.instance()
    scenario.connection.execute("INSERT INTO gateway (id, host, pid) VALUES ('g', 'h', 1)")
    batch_id = scenario.batch([chat_line("a")])
    async with serving(dsn):
        await until_async(lambda: scenario.one("SELECT count(*) FROM decision WHERE reason = 'no_signal'") > 0)
        assert scenario.counts(batch_id).done == 0
        scenario.connection.execute("DELETE FROM gateway")
        assert await ended(scenario, batch_id) is BatchState.COMPLETED


async def test_a_worker_that_stops_hands_back(dsn: str, scenario: Scenario, upstream: Upstream) -> None:
    hold = threading.Event()

    async def wait(_: Any, __: bytes) -> web.StreamResponse:
        while not hold.is_set():
            await asyncio.sleep(0.01)
        return web.Response(body=b"{}")

    upstream.handler = wait
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(40)])
    async with serving(dsn, "up", grace_seconds=0.2):
        await until_async(lambda: len(upstream.bodies) == 16)

    assert scenario.one("SELECT count(*) FROM lease") == 0
    assert scenario.one("SELECT sum(n) FROM segment") == 40
    assert scenario.one("SELECT stopped_at IS NOT NULL FROM worker")
    hold.set()
    async with serving(dsn, "up"):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED
    assert scenario.counts(batch_id).succeeded == 40
