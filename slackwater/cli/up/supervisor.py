"""Runs the parts beside a database: starts them, waits until they are ready, keeps them, stops them all within seconds."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slackwater.cli.up.child import Child
from slackwater.cli.up.child_log import last_word, trim
from slackwater.cli.up.database import Embedded, External
from slackwater.embedded.errors import EmbeddedServerError
from slackwater.errors import Misconfigured
from slackwater.settings import Settings

STOP_SECONDS: Final = 3.5
POLL_SECONDS: Final = 0.05
WATCH_SECONDS: Final = 1.0
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REGISTERED: Final = "SELECT 1 FROM worker WHERE pid = %s AND host = %s AND stopped_at IS NULL"


@dataclass
class Supervisor:
    """The parts of one `up`. `tell` says to a person what goes on."""

    settings: Settings
    database: External | Embedded
    environment: Mapping[str, str]
    logs: Path
    instance: str
    tell: Callable[[str], None]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    children: list[Child] = field(default_factory=list)

    async def run(self, ready: Callable[[str], None]) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP. `ready` hears the URL once a batch would be run.

        Raises:
            SlackwaterError: a part does not start.
        """
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.stopping.set)
        self.children = [self._child(*part) for part in self._parts()]
        running = [asyncio.create_task(child.run()) for child in self.children]
        try:
            await self._until_stopped(self._begin(ready))
        finally:
            await self._stop(running)

    def _parts(self) -> list[tuple[str, list[str]]]:
        """In the order in which they are stopped."""
        port = str(self.settings.port)
        return [
            ("worker", ["worker", "--instance", self.instance]),
            ("api", ["api", "--host", self.settings.host, "--port", port]),
            ("dispatch", ["dispatch"]),
            ("duties", ["duties"]),
        ]

    def _child(self, name: str, arguments: list[str]) -> Child:
        log = self.logs / f"{name}.log"
        trim(log)
        return Child(name, arguments, self.environment, log, self.tell)

    async def _until_stopped(self, begin: Awaitable[None]) -> None:
        beginning = asyncio.ensure_future(begin)
        watching = asyncio.create_task(self._watch())
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({beginning, stopped, watching}, return_when=asyncio.FIRST_COMPLETED)
            if beginning.done():
                await beginning
                await asyncio.wait({stopped, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
        finally:
            for task in (beginning, watching, stopped):
                task.cancel()
            await asyncio.gather(beginning, watching, stopped, return_exceptions=True)

    async def _begin(self, ready: Callable[[str], None]) -> None:
        worker, api, *others = self.children
        url = await self._first(_said_ready(api))
        # A restarted API comes back where its clients know it.
        api.arguments[api.arguments.index("--port") + 1] = url.rsplit(":", 1)[1]
        for child in others:
            await self._first(_said_ready(child))
        await self._first(self._registered(worker))
        await self._first(_answers(f"{url}/readyz"))
        ready(url)

    async def _first(self, coming: Awaitable[str]) -> str:
        """What is awaited; a part that ends at its first start is a reason to give up and say why."""
        waiting = asyncio.ensure_future(coming)
        try:
            while not waiting.done():
                if (dead := next((child for child in self.children if child.deaths), None)) is not None:
                    raise Misconfigured(f"{dead.name} does not start: {last_word(dead.log)} (all of it: {dead.log})")
                await asyncio.wait({waiting}, timeout=POLL_SECONDS)
            return await waiting
        finally:
            waiting.cancel()

    async def _registered(self, worker: Child) -> str:
        from slackwater.storage.connections import connect_async

        async with await connect_async(self.settings.dsn) as connection:
            while True:
                cursor = await connection.execute(REGISTERED, (worker.pid or 0, socket.gethostname()))
                if await cursor.fetchone() is not None:
                    return self.instance
                await asyncio.sleep(POLL_SECONDS)

    async def _watch(self) -> None:
        """Revive the database, keep the logs small."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await asyncio.to_thread(self.database.revive)
                for child in self.children:
                    trim(child.log)
            except (OSError, EmbeddedServerError) as error:
                self.tell(f"{type(error).__name__}: {error}; looking again in {WATCH_SECONDS:g} s")

    async def _stop(self, running: list[asyncio.Task[None]]) -> None:
        """Ask all, in order; who has not ended by then is killed. The database is stopped by its owner, after this."""
        began = time.monotonic()
        for child in self.children:
            child.stop()
        writing = asyncio.create_task(asyncio.to_thread(self.database.write_out))
        _, late = await asyncio.wait(running, timeout=STOP_SECONDS)
        for child, task in zip(self.children, running, strict=True):
            if task in late:
                self.tell(f"{child.name} does not stop: killing it")
                child.stop(signal.SIGKILL)
        await asyncio.gather(*running, writing)
        self.tell(f"stopped in {time.monotonic() - began:.1f} s")


async def _said_ready(child: Child) -> str:
    """Wait until it says `ready` on its standard output; returns what it says with it."""
    while True:
        word, _, rest = (await child.said.get()).partition(" ")
        if word == "ready":
            return rest


async def _answers(url: str) -> str:
    """Wait until a GET of `url` is answered with 200."""
    import httpx2

    async with httpx2.AsyncClient(timeout=5, trust_env=False) as client:
        while True:
            try:
                if (await client.get(url)).status_code == 200:
                    return url
            except httpx2.TransportError:
                pass
            await asyncio.sleep(POLL_SECONDS)
