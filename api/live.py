"""This process among the gateways: it writes what live traffic it carries on each instance, four times a second, idle too, and
soon after a live request came or got its first token.

Workers hold while these figures are stale, so silence must never look like idleness.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import ids
from slackwater.loop import Loop
from slackwater.storage.database import Database

log = structlog.get_logger()
INTERVAL_SECONDS: Final = 0.25
SOONEST_SECONDS: Final = 0.05
GOODBYE_SECONDS: Final = 1.0

HEARTBEAT = text("""
INSERT INTO gateway (id, host, pid) VALUES (:gateway, :host, :pid) ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()
""")
WRITE = text("""
INSERT INTO live_load (instance_id, gateway_id, running, waiting, ttft_p99_seconds, itl_p99_seconds, at)
SELECT i.id, :gateway, coalesce(l.running, 0), coalesce(l.waiting, 0), l.ttft, l.itl, now()
  FROM instance i
  LEFT JOIN unnest(CAST(:instances AS integer[]), CAST(:running AS integer[]), CAST(:waiting AS integer[]),
                   CAST(:ttft AS real[]), CAST(:itl AS real[])) AS l (id, running, waiting, ttft, itl) ON l.id = i.id
 WHERE i.disabled_at IS NULL
 ORDER BY i.id
ON CONFLICT (instance_id, gateway_id) DO UPDATE
   SET running = excluded.running, waiting = excluded.waiting, ttft_p99_seconds = excluded.ttft_p99_seconds,
       itl_p99_seconds = excluded.itl_p99_seconds, at = excluded.at
""")
ON_THIS_HOST = text("SELECT id, pid FROM gateway WHERE host = :host")
FORGET = (
    text("DELETE FROM live_load WHERE gateway_id = :gateway"),
    text("DELETE FROM gateway WHERE id = :gateway"),
)


@dataclass(frozen=True, slots=True)
class Load:
    """Live requests on one instance; times are seconds, None where nothing was measured."""

    running: int = 0
    waiting: int = 0
    ttft_p99_seconds: float | None = None
    itl_p99_seconds: float | None = None


@dataclass
class Presence:
    """Registers this process, keeps its figures fresh, and takes them away when it ends.

    `loads` tells what this process carries now by the id of the instance; instances without an entry carry nothing.
    """

    database: Database
    loads: Callable[[], Mapping[int, Load]] = dict
    gateway: str = field(default_factory=lambda: ids.new("gw_"))
    _written_at: float = 0.0
    _soon: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.loop = Loop("presence", self.step, INTERVAL_SECONDS)

    def changed(self) -> None:
        """Write before the next beat is due, at most every `SOONEST_SECONDS`."""
        if self._soon is None:
            wait = self._written_at + SOONEST_SECONDS - time.monotonic()
            self._soon = asyncio.get_running_loop().call_later(max(0.0, wait), self.loop.wake.set)

    async def step(self) -> int:
        """Write the heartbeat and every figure once, in one transaction."""
        self._soon, self._written_at = None, time.monotonic()
        values = {"gateway": self.gateway, "host": socket.gethostname(), "pid": os.getpid()}
        async with self.database.gate() as connection:
            await connection.execute(HEARTBEAT, values)
            await connection.execute(WRITE, values | _columns(self.loads()))
        return 0

    async def succeed(self) -> None:
        """Remove the rows of processes of this host that are dead: killed ones said no goodbye, and workers hold for them."""
        async with self.database.gate() as connection:
            found = await connection.execute(ON_THIS_HOST, {"host": socket.gethostname()})
            for gateway, pid in found.all():
                if not _is_alive(pid):
                    await self._forget(connection, gateway)

    async def leave(self) -> None:
        """Remove the rows, so that workers no longer wait for this process."""
        async with self.database.gate() as connection:
            await self._forget(connection, self.gateway)

    async def _forget(self, connection: AsyncConnection, gateway: str) -> None:
        for statement in FORGET:
            await connection.execute(statement, {"gateway": gateway})

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Present inside of the block."""
        with contextlib.suppress(SQLAlchemyError):
            await self.succeed()
        stopping = asyncio.Event()
        loop = asyncio.create_task(self.loop.run(stopping))
        try:
            yield
        finally:
            stopping.set()
            await loop
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.leave()
        except (SQLAlchemyError, TimeoutError) as error:
            log.warning("presence.not_removed", error=type(error).__name__)


def _is_alive(pid: int) -> bool:
    """True for another process that exists; a row with our own pid is of a process before us."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _columns(loads: Mapping[int, Load]) -> dict[str, list[int] | list[float | None]]:
    found = sorted(loads.items())
    return {
        "instances": [instance for instance, _ in found],
        "running": [load.running for _, load in found],
        "waiting": [load.waiting for _, load in found],
        "ttft": [load.ttft_p99_seconds for _, load in found],
        "itl": [load.itl_p99_seconds for _, load in found],
    }
