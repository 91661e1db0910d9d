"""A model server that keeps the bytes it was sent and answers with the bytes it was told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

USUAL = b'{"id":"c","object":"chat.completion","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'


@dataclass
class Upstream:
    """`received`: every body, as it came. `answers`: what is answered to a body, where that is not the usual."""

    models: tuple[str, ...]
    answers: Mapping[bytes, bytes] = field(default_factory=dict)
    received: list[bytes] = field(default_factory=list)
    url: str = ""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/{endpoint:.*}", self._answer)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": model} for model in self.models]})

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.received.append(body)
        return web.Response(body=self.answers.get(body, USUAL), content_type="application/json")


@contextmanager
def serving(upstream: Upstream) -> Iterator[Upstream]:
    """Serve on a free port, in a thread, until the end of the block."""
    ready, loops = threading.Event(), []

    async def run() -> None:
        runner, stopping = web.AppRunner(upstream.app(), access_log=None), asyncio.Event()
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        upstream.url = f"http://{host}:{port}"
        loops.append((asyncio.get_running_loop(), stopping))
        ready.set()
        await stopping.wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(20)
    try:
        yield upstream
    finally:
        loop, stopping = loops[0]
        loop.call_soon_threadsafe(stopping.set)
        thread.join(20)
    assert not thread.is_alive()
