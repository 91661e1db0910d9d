"""Many workers on one instance ask at once: what they are granted never sums up to more than there is."""

from __future__ import annotations

import asyncio
import random

from scheduler.queue.status import Status
from tests.scenario import Scenario

MOST = 16


async def test_grants_never_sum_up_to_more_than_the_limit(dsn: str) -> None:
    scenario = Scenario.on(dsn)
    instance_id = scenario.instance()
    workers = [Status.on(dsn, n, instance_id) for n in range(1, 7)]
    chance = random.Random(5)
    held = dict.fromkeys(range(1, 7), 0)

    async def ask_often(status: Status) -> None:
        for _ in range(30):
            granted = await status.ask(
                asked=chance.choice((0, 3, MOST)), most=MOST, in_flight=min(held[status.worker_id], 2)
            )
            held[status.worker_id] = granted
            assert scenario.one('SELECT sum(slots) FROM "grant"') <= MOST

    await asyncio.gather(*(ask_often(status) for status in workers))

    for status in workers:
        await status.close()
    scenario.close()


async def test_one_that_holds_all_makes_room_for_another(dsn: str) -> None:
    scenario = Scenario.on(dsn)
    instance_id = scenario.instance()
    one, two = (Status.on(dsn, n, instance_id) for n in (1, 2))

    assert await one.ask(asked=MOST, most=MOST, in_flight=0) == MOST
    assert await two.ask(asked=MOST, most=MOST, in_flight=0) == 0
    assert await one.ask(asked=MOST, most=MOST, in_flight=12) == 12
    assert await two.ask(asked=MOST, most=MOST, in_flight=0) == 4
    assert await one.ask(asked=MOST, most=MOST, in_flight=5) == 8
    assert await two.ask(asked=MOST, most=MOST, in_flight=4) == 8
    assert await one.ask(asked=0, most=MOST, in_flight=0) == 0
    assert await two.ask(asked=MOST, most=MOST, in_flight=8) == MOST

    await one.close()
    await two.close()
    scenario.close()
