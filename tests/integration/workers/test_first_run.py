"""A batch goes through the duties and a worker with the scripted engine, all in this process, on a real database."""

from __future__ import annotations

import pytest

from slackwater.lifecycle import BatchState
from tests.integration.workers.serving import ended, serving
from tests.scenario import Scenario, chat_line


@pytest.mark.parametrize("lines", [1, 200])
async def test_a_batch_completes(dsn: str, lines: int) -> None:
    scenario = Scenario.on(dsn)
    scenario.instance()
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(lines)], plan_now=False)
    async with serving(dsn):
        assert await ended(scenario, batch_id) is BatchState.COMPLETED

    assert sorted(line["custom_id"] for line in scenario.lines(batch_id)) == sorted(f"r{n}" for n in range(lines))
    scenario.close()
