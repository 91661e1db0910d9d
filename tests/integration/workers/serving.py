"""A worker in the test's own process, with the duties beside it, until the test is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from scheduler.duties import loop as duties
from slackwater.lifecycle import BatchState
from tests.scenario import Scenario, settings_for
from tests.waiting import until_async
from workers.instance import open_engine, register
from workers.worker import Worker


@asynccontextmanager
async def serving(dsn: str, instance: str = "echo", **settings: Any) -> AsyncIterator[Worker]:
    """A worker and the duties; both have ended in order when the block is left."""
    chosen = settings_for(dsn, **settings)
    stopping = asyncio.Event()
    registered = register(chosen, instance)
    worker = Worker(chosen, registered, await open_engine(registered, chosen), stopping)
    running = [asyncio.create_task(duties.run(chosen, stopping)), asyncio.create_task(worker.run())]
    try:
        yield worker
    finally:
        stopping.set()
        await asyncio.gather(*running)


async def ended(scenario: Scenario, batch_id: int) -> BatchState:
    """Wait until a batch is final, and say how it ended."""
    await until_async(lambda: BatchState(scenario.row(batch_id)["state"]).is_final)
    return BatchState(scenario.row(batch_id)["state"])
