"""What `slackwater headroom` shows, of a worker that runs and of an instance without one."""

from __future__ import annotations

from slackwater.cli.headroom import cells
from slackwater.storage.database import Database
from slackwater.storage.headroom_view import workers
from tests.integration.workers.serving import serving
from tests.scenario import Scenario
from tests.waiting import until_async


async def test_a_worker_and_an_instance_without_one(dsn: str) -> None:
    scenario = Scenario.on(dsn)
    instance_id = scenario.instance("busy", max_slots=8)
    scenario.instance("idle")
    scenario.connection.execute("INSERT INTO gateway (id, host, pid) VALUES ('g', 'h', 1)")
    insert = "INSERT INTO live_load VALUES (%s, 'g', 2, 1, 0.25, 0.04, now())"
    scenario.connection.execute(insert.encode(), (instance_id,))
    database = Database(dsn, pool_size=1)

    def has_held() -> bool:
        scenario.connection.execute("UPDATE live_load SET at = now()")
        newest = "SELECT reason FROM decision ORDER BY at DESC LIMIT 1"
        return scenario.connection.execute(newest).fetchone() == ("live_waiting",)

    async with serving(dsn, "busy"):
        await until_async(has_held)
        async with database.admin() as connection:
            busy, idle = [cells(row) for row in await workers(connection)]
    await database.close()
    scenario.close()

    assert busy[3:6] == ("2 running, 1 waiting", "250 ms", "40 ms")
    assert busy[8:] == ("hold", "live_waiting: 1 live requests are waiting")
    assert idle[2] == "-"
    assert idle[9] == "no worker serves its models right now"
