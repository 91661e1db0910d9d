"""The worker process: register, open the engine, work until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import structlog
import uvloop

from scheduler.admission import Policy
from scheduler.headroom import Headroom
from slackwater.settings import Settings
from slackwater.storage.notices import listen
from workers.instance import open_engine, register
from workers.worker import Worker

log = structlog.get_logger()


def main(settings: Settings, instance_name: str, headroom_for: Callable[[Policy], Headroom] = Headroom) -> None:
    """Serve one instance until told to stop. `headroom_for` makes what decides.

    Raises:
        Misconfigured: no enabled instance has this name, or its engine cannot be opened.
    """
    uvloop.run(_serve(settings, instance_name, headroom_for))


async def _serve(settings: Settings, instance_name: str, headroom_for: Callable[[Policy], Headroom]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    instance = register(settings, instance_name)
    structlog.contextvars.bind_contextvars(worker=instance.worker_id, instance=instance.name)
    engine = await open_engine(instance, settings)
    log.info("worker.started", engine=instance.engine)
    worker = Worker(settings, instance, engine, stopping, headroom_for)
    listening = asyncio.create_task(listen(settings.dsn, lambda notice: _hear(worker, notice), stopping))
    await worker.run()
    await listening
    log.info("worker.stopped")


def _hear(worker: Worker, notice: str | None) -> None:
    if notice in (None, "work"):
        worker.look_again()
