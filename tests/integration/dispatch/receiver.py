"""A real receiver on the loopback: it keeps what it gets and answers as it is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    """One POST: its path, its headers and its exact body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]


async def accept(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


def answer(status: int, **headers: str) -> Answer:
    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return reply


@dataclass
class Receiver:
    """`answers` maps a path to what it does; any other path accepts."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for(self, n: int, path: str | None = None, *, seconds: float = 20.0) -> list[Received]:
        """What came to `path` once there are `n` of them."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.at(path)) >= n)
        return self.at(path)

    def at(self, path: str | None) -> list[Received]:
        return [post for post in self.received if path is None or post.path == path]

    def counts(self) -> Counter[str]:
        return Counter(post.event_id for post in self.received)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        post = Received(request.path, headers, await request.read())
        async with self._changed:
            self.received.append(post)
            self._changed.notify_all()
        return await self.answers.get(request.path, accept)(request)


@asynccontextmanager
async def serving() -> AsyncIterator[Receiver]:
    """A receiver on a free port of 127.0.0.1."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}"
    try:
        yield receiver
    finally:
        await runner.cleanup()
