"""All duties in one process: each in its own loop with its own connection, woken by notifications."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog
from psycopg import Connection, OperationalError
from psycopg.rows import TupleRow

from scheduler.duties import Duty
from scheduler.duties.all import DUTIES, lag
from slackwater.loop import Loop
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from slackwater.storage.notices import listen
from slackwater.telemetry import DUTY_LAG_SECONDS, DUTY_SECONDS

log = structlog.get_logger()
# Which duties a notification is for; an unknown one is for nobody.
WAKES: Final = {"validate": ("validate",), "settle": ("settle", "finalise"), "done": ("finalise",)}


@dataclass
class Runner:
    """One duty on a connection that is made anew when it breaks."""

    duty: Duty
    settings: Settings
    connection: Connection[TupleRow] | None = None

    def step(self) -> int:
        """One step of the duty, timed. A broken connection is dropped; the next step makes a new one."""
        if self.connection is None or self.connection.closed:
            self.connection = connect(self.settings.dsn)
        try:
            with DUTY_SECONDS.labels(self.duty.name).time():
                return self.duty.step(self.connection, self.settings)
        except OperationalError:
            self.close()
            raise

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


async def run(settings: Settings, stopping: asyncio.Event) -> None:
    """Run every duty until `stopping` is set."""
    runners = [Runner(duty, settings) for duty in DUTIES]
    loops = {r.duty.name: _loop(r) for r in runners}
    lags = Runner(Duty("lag", _measure_lag, 5.0), settings)
    tasks = [asyncio.create_task(loop.run(stopping)) for loop in (*loops.values(), _loop(lags))]
    listener = asyncio.create_task(listen(settings.dsn, lambda notice: _wake(loops, notice), stopping))
    await asyncio.gather(*tasks, listener)
    for runner in (*runners, lags):
        runner.close()


def _loop(runner: Runner) -> Loop:
    async def step() -> int:
        return await asyncio.to_thread(runner.step)

    return Loop(runner.duty.name, step, runner.duty.interval_seconds)


def _wake(loops: dict[str, Loop], notice: str | None) -> None:
    """Wake the duties a notice is for; None, after a reconnect, wakes all."""
    for name in loops if notice is None else WAKES.get(notice, ()):
        loops[name].wake.set()


def _measure_lag(connection: Connection[TupleRow], _: Settings) -> int:
    for name, seconds in lag(connection).items():
        DUTY_LAG_SECONDS.labels(name).set(seconds)
    return 0
