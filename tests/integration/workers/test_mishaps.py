"""A worker whose connections fail at the worst moment, and answers the database does not take: nothing is lost, nothing blocks the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from scheduler.queue.claims import Claims
from scheduler.queue.results import Results
from scheduler.queue.work import Finished, Request
from slackwater.lifecycle import BatchState, Outcome
from slackwater.reader.output_line import answer_line, read_answer
from slackwater.reader.usage import Usage
from tests.integration.workers.serving import ended, serving
from tests.scenario import MODEL, Scenario, chat_line
from workers.held import Held
from workers.outgoing import MOST_BYTES, Outgoing, fitting


@pytest.fixture
def scenario(dsn: str) -> Iterator[Scenario]:
    scenario = Scenario.on(dsn)
    yield scenario
    scenario.close()


async def test_a_suspect_whose_lease_cannot_be_marked_is_tried_again(
    dsn: str, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.instance()
    batch_id = scenario.batch([chat_line("a"), chat_line("b")])
    scenario.connection.execute("UPDATE segment SET rescues = 2")
    marked, failures = Claims.mark_alone, iter([True, True])

    async def mark_alone(self: Claims, token: UUID) -> bool:
        if next(failures, False):
            raise psycopg.OperationalError("the server is away")
        return await marked(self, token)

    monkeypatch.setattr(Claims, "mark_alone", mark_alone)
    async with serving(dsn):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    assert scenario.counts(batch_id).succeeded == 2


async def test_an_answer_the_database_refuses_ends_as_an_error_alone(dsn: str, scenario: Scenario) -> None:
    instance_id = scenario.instance()
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(5)])
    claims, results = Claims.on(dsn, 1, 60.0), Results.on(dsn, 1, instance_id)
    claim = await claims.claim(scenario.models[MODEL], [batch_id], most=64)
    assert claim is not None
    outgoing, held = Outgoing(results), Held()
    held.add(claim)
    for request in claim.requests:
        too_large = replace(finished(request), http=70_000)
        outgoing.finish(too_large if request.custom_id == "r2" else finished(request))
        if (holding := held.end(request)) is not None:
            outgoing.close(request.token, holding.returned)
    outgoing.end(within_seconds=20)
    await asyncio.wait_for(outgoing.run(), 20)
    await claims.close()
    await results.close()

    failed = [line["custom_id"] for line in scenario.lines(batch_id) if line["error"]]
    assert failed == ["r2"]
    assert (scenario.counts(batch_id).succeeded, scenario.counts(batch_id).failed) == (4, 1)
    assert scenario.one("SELECT count(*) FROM lease") == 0


def finished(request: Request) -> Finished:
    line = answer_line("id", request.custom_id, "req", read_answer(200, b"{}"))
    return Finished(request, Outcome.SUCCEEDED, 200, Usage(1, 1, None), 0, line)


@pytest.mark.parametrize(
    ("sizes", "n"),
    [([], 0), ([1] * 100, 64), ([MOST_BYTES * 4, 1], 1), ([1, MOST_BYTES], 1), ([MOST_BYTES // 2] * 3, 2), ([5], 1)],
)
def test_a_commit_is_bounded_in_lines_and_bytes(sizes: list[int], n: int) -> None:
    assert fitting(sizes) == n


def test_one_tenants_batches_are_not_validated_before_anothers_first(dsn: str, scenario: Scenario) -> None:
    from scheduler.duties import plan
    from slackwater.storage.connections import connect
    from tests.scenario import settings_for

    many: list[Any] = [scenario.batch([chat_line("a")], plan_now=False) for _ in range(3)]
    other = Scenario.on(dsn, name="other")
    one = other.batch([chat_line("a")], plan_now=False)
    with connect(dsn) as connection:
        plan.step(connection, settings_for(dsn))

    planned = [BatchState(scenario.row(batch_id)["state"]) for batch_id in (*many, one)]
    assert planned == [BatchState.IN_PROGRESS, BatchState.VALIDATING, BatchState.VALIDATING, BatchState.IN_PROGRESS]
    other.close()
