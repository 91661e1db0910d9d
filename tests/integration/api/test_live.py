"""The presence of an API process among the gateways."""

from __future__ import annotations

import asyncio

from psycopg import Connection
from psycopg.rows import TupleRow

from api.gateway.figures import Figures
from api.live import INTERVAL_SECONDS, Load, Presence
from slackwater.storage.database import Database
from slackwater.tenancy import instances
from slackwater.tenancy.instances import NewInstance
from tests.waiting import until_async

FIGURES = "SELECT running, waiting, ttft_p99_seconds, itl_p99_seconds FROM live_load ORDER BY instance_id"


async def test_figures_are_written_for_every_enabled_instance(dsn: str, worker: Connection[TupleRow]) -> None:
    database = Database(dsn, pool_size=1)
    presence = Presence(database)
    async with database.admin() as connection:
        for name in ("one", "two", "off"):
            await instances.create(connection, NewInstance(name=name, models={"m": "m"}, engine="echo"))
        await instances.disable(connection, "off")
        two = (await instances.find(connection, "two"))["id"]
    await presence.step()
    assert worker.execute(FIGURES).fetchall() == [(0, 0, None, None)] * 2

    presence.loads = lambda: {two: Load(3, 1, 0.5, 0.25)}
    await presence.step()

    assert worker.execute(FIGURES).fetchall() == [(0, 0, None, None), (3, 1, 0.5, 0.25)]
    assert worker.execute("SELECT id FROM gateway").fetchall() == [(presence.gateway,)]
    await presence.leave()
    assert worker.execute("SELECT count(*) FROM gateway").fetchone() == (0,)
    assert worker.execute(FIGURES).fetchall() == []
    await database.close()


async def test_figures_stay_fresh_and_go_with_the_process(dsn: str, worker: Connection[TupleRow]) -> None:
    database = Database(dsn, pool_size=1)
    async with database.admin() as connection:
        await instances.create(connection, NewInstance(name="one", models={"m": "m"}, engine="echo"))
    stamps: set[object] = set()

    async with Presence(database).kept():
        for _ in range(200):
            stamps |= {row[0] for row in worker.execute("SELECT at FROM live_load").fetchall()}
            if len(stamps) >= 3:
                break
            await asyncio.sleep(INTERVAL_SECONDS / 10)

    assert len(stamps) >= 3
    assert worker.execute("SELECT count(*) FROM live_load").fetchone() == (0,)
    await database.close()


async def test_a_live_request_is_told_of_before_the_next_beat(dsn: str, worker: Connection[TupleRow]) -> None:
    """The beat is an hour here: only what changed can have been written."""
    database = Database(dsn, pool_size=1)
    async with database.admin() as connection:
        await instances.create(connection, NewInstance(name="one", models={"m": "m"}, engine="echo"))
        one = (await instances.find(connection, "one"))["id"]
    figures = Figures()
    presence = Presence(database, figures.loads)
    presence.loop.interval_seconds = 3600.0
    figures.changed = presence.changed

    async with presence.kept():
        await until_async(lambda: worker.execute(FIGURES).fetchall() == [(0, 0, None, None)])
        with figures.request(one, is_stream=True) as live:
            await until_async(lambda: worker.execute(FIGURES).fetchall() == [(0, 1, None, None)])
            live.token()
            await until_async(lambda: [row[:2] for row in worker.execute(FIGURES).fetchall()] == [(1, 0)])
    await database.close()
