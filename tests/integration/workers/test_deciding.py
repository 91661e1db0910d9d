"""When a worker decides: on every sample of the engine, not at times of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.admission import Admit, Hold
from slackwater.explain import Reason
from slackwater.lifecycle import BatchState
from tests.integration.workers.serving import ended, serving
from tests.integration.workers.test_worker import served_by
from tests.scenario import Scenario, chat_line
from tests.upstream import Upstream
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


def _reason(decision: Admit | Hold) -> Reason | None:
    return decision.reason if isinstance(decision, Hold) else None
