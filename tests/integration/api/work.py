"""Real duties and a real worker with the scripted engine, beside the API of a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.types.json import Json

from scheduler.duties import loop as duties
from scheduler.duties import plan
from slackwater import ids
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from tests.waiting import until
from workers.instance import open_engine, register
from workers.worker import Worker

ECHO = "echo"


def add_echo(dsn: str, **options: Any) -> None:
    """An echo instance that serves every model there is."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO instance (public_id, name, engine, options) VALUES (%s, %s, 'echo', %s)",
            (ids.new("inst_"), ECHO, Json(options)),
        )
        owner.execute("INSERT INTO instance_model SELECT i.id, m.id, m.name FROM instance i, model m")


def plan_all(settings: Settings) -> None:
    """Run the validate duty until nothing waits."""
    with connect(settings.dsn) as connection:
        while plan.step(connection, settings):
            pass


@contextmanager
def at_work(settings: Settings, *, with_worker: bool = True) -> Iterator[None]:
    """Duties, and a worker where an echo instance was added, run inside of the block."""
    ready, loops = threading.Event(), []

    async def run() -> None:
        stopping = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stopping))
        ready.set()
        tasks = [asyncio.create_task(duties.run(settings, stopping))]
        if with_worker:
            instance = register(settings, ECHO)
            tasks.append(
                asyncio.create_task(Worker(settings, instance, await open_engine(instance, settings), stopping).run())
            )
        await asyncio.gather(*tasks)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        loop, stopping = loops[0]
        loop.call_soon_threadsafe(stopping.set)
        thread.join(60)
    assert not thread.is_alive()


def ended(http: Any, batch_id: str, *, seconds: float = 60) -> Mapping[str, Any]:
    """The object of a batch once it is final."""
    found: dict[str, Any] = {}

    def is_final() -> bool:
        found.update(http.get(f"/v1/batches/{batch_id}").json())
        return found["status"] in ("completed", "failed", "expired", "cancelled")

    until(is_final, seconds)
    return found
