"""A small OpenAI-compatible server for tests: it keeps the bytes it gets, and streams, waits or breaks off as the test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

Call = Callable[[web.Request], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}'
)


async def answer(_: web.Request, __: bytes) -> web.StreamResponse:
    return web.Response(body=ANSWER, content_type="application/json")


@dataclass
class Upstream:
    """Runs in a thread of its own on a free port. `handler` may be changed while it runs; with `api_key`, calls without it get a 401."""

    handler: Handler = answer
    models: tuple[str, ...] = ("tiny-chat",)
    metrics: str | None = None
    api_key: str | None = None
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    aborted: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Upstream:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,))
        self._thread.start()
        assert ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join(60)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=64 << 20, middlewares=[self._check_key])
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/{path:.*}", self._post)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Call) -> web.StreamResponse:
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return web.json_response({}, status=401)
        return await handler(request)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": model, "object": "model"} for model in self.models]}
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(status=404) if self.metrics is None else web.Response(text=self.metrics)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        try:
            return await self.handler(request, body)
        except asyncio.CancelledError:
            self.aborted.set()
            raise


def told(answers: Mapping[bytes, bytes]) -> Handler:
    """A handler that answers a body with the bytes that stand for it in `answers`, and any other with `ANSWER`."""

    async def handle(_: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(body=answers.get(body, ANSWER), content_type="application/json")

    return handle


def streaming(pieces: list[str], *, hold: threading.Event | None = None, breaks: bool = False) -> Handler:
    """A handler that sends `pieces` as server-sent events; with `hold`, it waits for it after the first; `breaks` ends without the last chunk."""

    async def handle(request: web.Request, _: bytes) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for n, piece in enumerate(pieces):
            await reply.write(f"data: {piece}\n\n".encode())
            while n == 0 and hold is not None and not hold.is_set():
                await asyncio.sleep(0.01)
        if breaks:
            assert request.transport is not None
            request.transport.abort()
        return reply

    return handle
