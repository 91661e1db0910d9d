"""The sender's process: two loops over one `Dispatcher`, woken by the database, until told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from scheduler.dispatch.claims import Limits
from scheduler.dispatch.dispatcher import Dispatcher
from slackwater.loop import Loop
from slackwater.settings import Settings
from slackwater.storage.notices import listen
from slackwater.webhooks.sender import Sender

log = structlog.get_logger()

PAYLOAD: Final = "dispatch"
# Retries become due without a notification; a lost one costs no more than this either.
INTERVAL_SECONDS: Final = 1.0


async def run(
    settings: Settings,
    stopping: asyncio.Event,
    limits: Limits | None = None,
    ready: Callable[[], None] | None = None,
) -> None:
    """Deliver what is due until `stopping` is set; then record what ended within the grace and hand back the rest.

    Several may run at once. Delivery is at least once: what a dead sender held is sent again, with the same id and bytes.

    Raises:
        Misconfigured: no database or no master key is set.
    """
    async with Sender(settings) as sender:
        if ready is not None:
            ready()
        dispatcher = Dispatcher(settings, sender, limits)
        try:
            await _run_loops(dispatcher, settings, stopping)
            await dispatcher.settle(settings.grace_seconds)
        finally:
            await dispatcher.close()


async def _run_loops(dispatcher: Dispatcher, settings: Settings, stopping: asyncio.Event) -> None:
    claiming = Loop("dispatch.claim", dispatcher.claim_step, INTERVAL_SECONDS)
    recording = Loop("dispatch.record", _then_wake(dispatcher, claiming), INTERVAL_SECONDS, wake=dispatcher.finished)
    heard = listen(settings.dsn, lambda notice: claiming.wake.set() if notice in (None, PAYLOAD) else None, stopping)
    await asyncio.gather(claiming.run(stopping), recording.run(stopping), heard)


def _then_wake(dispatcher: Dispatcher, claiming: Loop) -> Callable[[], Awaitable[int]]:
    """The recording step; each slot it frees may be claimed for."""

    async def step() -> int:
        recorded = await dispatcher.record_step()
        if recorded:
            claiming.wake.set()
        return recorded

    return step


def main(settings: Settings, ready: Callable[[], None] | None = None) -> None:
    """`slackwater dispatch`: run until SIGTERM or SIGINT. `ready` is called once the settings have been found right.

    Raises:
        Misconfigured: as for `run`.
    """
    asyncio.run(_until_signalled(settings, ready))


async def _until_signalled(settings: Settings, ready: Callable[[], None] | None) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await run(settings, stopping, ready=ready)
