"""The process of the duties: run them all until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import structlog

from scheduler.duties.loop import run
from slackwater.settings import Settings

log = structlog.get_logger()


def main(settings: Settings, ready: Callable[[], None]) -> None:
    """Run the duties until told to stop. `ready` is called before the first step.

    Raises:
        Misconfigured: no database is set.
    """
    asyncio.run(_until_signalled(settings, ready))


async def _until_signalled(settings: Settings, ready: Callable[[], None]) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    log.info("duties.started")
    ready()
    await run(settings, stopping)
    log.info("duties.stopped")
