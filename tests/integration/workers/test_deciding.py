"""When a worker decides: on every sample of the engine, not at times of its own; and what it does with the decision."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from scheduler.admission import Admit, Hold
from scheduler.queue.work import Request
from slackwater.explain import Reason
from slackwater.lifecycle import BatchState
from tests.integration.workers.serving import ended, serving
from tests.integration.workers.test_worker import served_by
from tests.scenario import Scenario, chat_line
from tests.upstream import Upstream, answer
from tests.waiting import until_async

PAGE = "vllm:num_requests_running %d\nvllm:num_requests_waiting %d\n"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


async def test_a_decision_follows_each_sample_of_the_engine(dsn: str, upstream: Upstream) -> None:
    """The loop's own interval is an hour here: nothing but the samples makes it decide."""
    scenario = Scenario.on(dsn)
    served_by(scenario, upstream)
    upstream.metrics = PAGE % (0, 0)
    async with serving(dsn, "up") as worker:
        worker.decide.interval_seconds = 3600.0
        await until_async(lambda: isinstance(worker.deciding.decision, Admit))
        upstream.metrics = PAGE % (1, 2)
        await until_async(lambda: _reason(worker.deciding.decision) is Reason.LIVE_WAITING)
        upstream.metrics = PAGE % (0, 0)
        await until_async(lambda: isinstance(worker.deciding.decision, Admit))
    scenario.close()


async def test_what_is_claimed_while_its_instance_is_switched_off_runs(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim comes back after the worker has read that it serves nothing any more: what it claimed is not lost, and burns nothing."""
    scenario = Scenario.on(dsn)
    scenario.instance()
    async with serving(dsn) as worker:
        claim = worker.claims.claim

        async def late(*asked: Any, **options: Any) -> Any:
            claimed = await claim(*asked, **options)
            monkeypatch.undo()
            scenario.connection.execute("UPDATE instance SET disabled_at = now()")
            await until_async(lambda: worker.deciding.served == [])
            scenario.connection.execute("UPDATE instance SET disabled_at = NULL")
            return claimed

        monkeypatch.setattr(worker.claims, "claim", late)
        batch_id = scenario.batch([chat_line(f"r{n}") for n in range(5)])
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    assert scenario.connection.execute("SELECT DISTINCT attempt FROM result").fetchall() == [(1,)]
    scenario.close()


async def test_a_hold_takes_back_the_newest_that_have_no_token(dsn: str, upstream: Upstream) -> None:
    """What the policy says is given up stops in the engine, goes back, and runs again; what started before goes on."""
    scenario = Scenario.on(dsn)
    served_by(scenario, upstream)
    release = threading.Event()

    async def wait(request: web.Request, body: bytes) -> web.StreamResponse:
        while not release.is_set():
            await asyncio.sleep(0.01)
        return await answer(request, body)

    upstream.handler = wait
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(2)])
    async with serving(dsn, "up") as worker:
        await until_async(lambda: worker.runs.in_flight == 2 and len(upstream.bodies) == 2)
        worker._decided(Hold(Reason.LIVE_WAITING, cancel_unprefilled=True, newest=1))
        await until_async(upstream.aborted.is_set)
        release.set()
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    assert len(upstream.bodies) == 3
    assert scenario.counts(batch_id).succeeded == 2
    scenario.close()


async def test_prompts_are_counted_as_the_engine_counted_those_before(dsn: str, upstream: Upstream) -> None:
    """The estimate is a share of the bytes: what the answers say of it corrects the next ones."""
    scenario = Scenario.on(dsn)
    served_by(scenario, upstream)
    batch_id = scenario.batch([chat_line(f"r{n}", "word " * 100) for n in range(3)])
    async with serving(dsn, "up") as worker:
        assert await ended(scenario, batch_id) is BatchState.COMPLETED
        estimated = scenario.one("SELECT est_tokens FROM request LIMIT 1")
        request = SimpleNamespace(est_tokens=10 * estimated)

    assert worker.runs.prompt_tokens(cast("Request", request)) == 70
    scenario.close()


def _reason(decision: Admit | Hold) -> Reason | None:
    return decision.reason if isinstance(decision, Hold) else None
