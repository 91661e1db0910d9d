"""A batch goes through the duties and a worker with the scripted engine, all in this process, on a real database."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.duties import loop as duties
from slackwater.lifecycle import BatchState
from tests.scenario import Scenario, chat_line, settings_for
from workers.instance import open_engine, register
from workers.worker import Worker


@pytest.mark.parametrize("lines", [1, 200])
async def test_a_batch_completes(dsn: str, lines: int) -> None:
    scenario = Scenario.on(dsn)
    scenario.instance()
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(lines)], plan_now=False)
    settings = settings_for(dsn)
    stopping = asyncio.Event()
    instance = register(settings, "echo")
    worker = Worker(settings, instance, await open_engine(instance, settings), stopping)
    running = [asyncio.create_task(duties.run(settings, stopping)), asyncio.create_task(worker.run())]
    async with asyncio.timeout(30):
        while not BatchState(scenario.row(batch_id)["state"]).is_final:
            await asyncio.sleep(0.05)
    stopping.set()
    await asyncio.gather(*running)
    assert BatchState(scenario.row(batch_id)["state"]) is BatchState.COMPLETED
    assert sorted(line["custom_id"] for line in scenario.lines(batch_id)) == sorted(f"r{n}" for n in range(lines))
    scenario.close()
