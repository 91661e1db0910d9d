"""The worker against the database where something is broken on its own side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.duties import loop as duties
from scheduler.retry import Ending, Unanswered, Why
from slackwater.errors import SlackwaterError, Unavailable
from slackwater.lifecycle import BatchState
from slackwater.storage.connections import connect
from tests.scenario import Scenario, chat_line, settings_for
from tests.waiting import until_async
from workers.engines.base import Call, EngineLoad
from workers.engines.echo import EchoEngine
from workers.instance import register
from workers.worker import Worker


class FaultyEngine(EchoEngine):
    """Raises for one line, which no engine may do."""

    async def run(self, call: Call) -> Ending:
        if b"raise" in call.body:
            raise RuntimeError("a fault of ours")
        return await super().run(call)


@dataclass
class DyingEngine(EchoEngine):
    """As a model server that one line kills, with all that runs in it; somebody starts it again."""

    deaths: int = 0
    killed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, call: Call) -> Ending:
        died, running = self.killed, asyncio.create_task(super().run(call))
        if b"poison" in call.body:
            running.add_done_callback(lambda _: self._die())
        dying = asyncio.create_task(died.wait())
        await asyncio.wait([running, dying], return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        await asyncio.sleep(0)
        return Unanswered(Why.DROPPED) if died.is_set() else await running

    async def load(self) -> EngineLoad:
        if self.killed.is_set():
            raise Unavailable("dead")
        return await super().load()

    async def serves(self, model: str) -> bool:
        return not self.killed.is_set()

    def _die(self) -> None:
        self.deaths += 1
        self.killed.set()
        asyncio.get_running_loop().call_later(0.5, setattr, self, "killed", asyncio.Event())


@asynccontextmanager
async def working(scenario: Scenario, engine: EchoEngine | None = None, **changes: Any) -> AsyncIterator[Worker]:
    """A worker and all duties, stopped at the end."""
    settings, stopping = settings_for(scenario.dsn, max_attempts=2, **changes), asyncio.Event()
    worker = Worker(settings, register(settings, "echo"), engine or FaultyEngine(), stopping)
    running = [asyncio.create_task(duties.run(settings, stopping)), asyncio.create_task(worker.run())]
    try:
        yield worker
    finally:
        stopping.set()
        await asyncio.gather(*running)


async def test_a_line_that_we_cannot_run_ends(scenario: Scenario) -> None:
    batch_id = scenario.batch([chat_line("good"), chat_line("bad", "raise"), chat_line("fine")])

    async with working(scenario):
        await until_async(lambda: BatchState(scenario.row(batch_id)["state"]).is_final)

    lines = {line["custom_id"]: line for line in scenario.lines(batch_id)}
    assert lines["bad"]["error"]["code"] == "server_error"
    assert lines["good"]["error"] is None
    assert len(lines) == 3


async def test_a_neighbour_that_stands_still_costs_no_lease(scenario: Scenario) -> None:
    """It was stopped between locking the instance's row and its grant: nobody is granted anything, and nobody loses what it holds."""
    batch_id = scenario.batch([chat_line("slow", "echo: sleep=6")])

    async with working(scenario, lease_seconds=1.0):
        await until_async(lambda: scenario.one("SELECT count(*) FROM lease") == 1)
        token, over_at = scenario.one("SELECT token FROM lease"), scenario.one("SELECT now() + interval '3 seconds'")
        with connect(scenario.dsn) as neighbour, neighbour.transaction():
            neighbour.execute("SELECT FROM instance FOR NO KEY UPDATE")
            await until_async(lambda: scenario.one("SELECT clock_timestamp() > %s", over_at))
            assert scenario.one("SELECT array_agg(token) FROM lease") == [token]
        await until_async(lambda: BatchState(scenario.row(batch_id)["state"]).is_final)

    assert scenario.one("SELECT count(*) FROM attempt") == 0


async def test_a_part_that_breaks_ends_the_worker(scenario: Scenario) -> None:
    """What it held runs again elsewhere: nobody waits for a worker that stores nothing any more."""
    batch_id = scenario.batch([chat_line("one")])
    settings = settings_for(scenario.dsn, lease_seconds=1.0)
    broken = Worker(settings, register(settings, "echo"), EchoEngine(), asyncio.Event())

    async def fail(_: object) -> set[tuple[int, int]]:
        raise RuntimeError("a fault of ours")

    broken.outgoing.results.commit = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(SlackwaterError):
        await asyncio.wait_for(broken.run(), 30)

    async with working(scenario):
        await until_async(lambda: BatchState(scenario.row(batch_id)["state"]).is_final)
    assert [line["custom_id"] for line in scenario.lines(batch_id)] == ["one"]


async def test_who_kills_a_model_server_is_found_and_given_up(scenario: Scenario) -> None:
    """It would otherwise come back with growing delays until its window ends, and take live traffic down each time."""
    texts = ["poison echo: sleep=0.1" if n == 3 else "echo: sleep=0.3" for n in range(8)]
    batch_id = scenario.batch([chat_line(f"r{n}", text) for n, text in enumerate(texts)])
    engine = DyingEngine(latency_seconds=0.1)

    async with working(scenario, engine, lease_seconds=1.0):
        await until_async(lambda: BatchState(scenario.row(batch_id)["state"]).is_final)

    codes = {line["custom_id"]: (line["error"] or {}).get("code") for line in scenario.lines(batch_id)}
    assert codes == {f"r{n}": "engine_crash" if n == 3 else None for n in range(8)}
    assert engine.deaths <= 4
