"""The one skeleton of every background loop: step, then wait for a wake-up or the interval, until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

log = structlog.get_logger()


@dataclass
class Loop:
    """Repeats `step` until `stopping` is set. A failed step is logged, and the next one is tried.

    `step` returns how much it did; when it did something it is run again at once. `wake` cuts the wait short.
    """

    name: str
    step: Callable[[], Awaitable[int]]
    interval_seconds: float
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.wake.clear()
            if await self._step() == 0:
                await self._pause(stopping)

    async def _step(self) -> int:
        try:
            return await self.step()
        except Exception as error:
            log.exception("step.failed", loop=self.name, error=type(error).__name__)
            return 0

    async def _pause(self, stopping: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(self.wake.wait()), asyncio.ensure_future(stopping.wait())}
        try:
            await asyncio.wait(waits, timeout=self.interval_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
