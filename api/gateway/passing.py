"""Passing one live request through: the client's bytes out, the instance's bytes back, as they come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import structlog
from starlette.responses import Response, StreamingResponse

from api.gateway.directory import Upstream
from api.gateway.figures import Figures, Live
from api.gateway.stream_ends import StreamEnd, end_of
from api.gateway.whole_events import WholeEvents
from slackwater.errors import BadUpstream, Unavailable
from slackwater.reader.splice import splice

log = structlog.get_logger()
CONNECT_SECONDS: Final = 5.0
EVENTS: Final = "text/event-stream"


@dataclass
class Passing:
    """Keeps the connections to instances. Cancelling a reply's task ends its request in the engine too."""

    figures: Figures
    timeout_seconds: float
    session: aiohttp.ClientSession | None = None

    async def send(
        self, upstreams: Sequence[Upstream], path: str, body: bytes, *, model: str, is_stream: bool
    ) -> Response:
        """Try the upstreams, the least loaded first, until one answers; after its first byte there is no other.

        Raises:
            Unavailable: none could be reached.
            BadUpstream: the one that was reached broke its answer off.
        """
        for upstream in sorted(upstreams, key=lambda u: self.figures.in_flight(u.instance_id)):
            async with AsyncExitStack() as stack:
                live = stack.enter_context(self.figures.request(upstream.instance_id, is_stream=is_stream))
                try:
                    reply = await stack.enter_async_context(
                        self._post(upstream, path, _body_for(upstream, body, model))
                    )
                except (aiohttp.ClientError, TimeoutError) as error:
                    log.warning("instance.unreachable", instance=upstream.name, error=type(error).__name__)
                    continue
                return await _answer(reply, live, stack, end_of(path))
        raise Unavailable("No instance that serves this model answers.", param="model")

    def _post(self, upstream: Upstream, path: str, body: bytes) -> Any:
        if self.session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
            self.session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=True)
        headers = {"Content-Type": "application/json"}
        if upstream.api_key:
            headers["Authorization"] = f"Bearer {upstream.api_key}"
        timeout = aiohttp.ClientTimeout(total=self.timeout_seconds, sock_connect=CONNECT_SECONDS)
        return self.session.post(
            upstream.base_url + path, data=body, headers=headers, timeout=timeout, allow_redirects=False
        )

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()


def _body_for(upstream: Upstream, body: bytes, model: str) -> bytes:
    """The client's bytes; the model's name changes only where the instance was registered with another one."""
    if upstream.upstream_name == model:
        return body
    return splice(body, put={"model": json.dumps(upstream.upstream_name).encode()}, drop=())


async def _answer(reply: aiohttp.ClientResponse, live: Live, stack: AsyncExitStack, end: StreamEnd) -> Response:
    content_type = reply.headers.get("Content-Type", "application/json")
    if not content_type.startswith(EVENTS):
        return Response(await _whole(reply), reply.status, {"content-type": content_type})
    headers = {"content-type": content_type, "cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_relayed(reply, live, stack.pop_all(), end), reply.status, headers)


async def _whole(reply: aiohttp.ClientResponse) -> bytes:
    try:
        return await reply.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        log.warning("answer.broken", error=type(error).__name__)
        raise BadUpstream("The model server broke its answer off.") from None


async def _relayed(
    reply: aiohttp.ClientResponse, live: Live, stack: AsyncExitStack, end: StreamEnd
) -> AsyncIterator[bytes]:
    """The stream's events as they come. One that breaks ends with an error event: every client version understands that.

    Without it the OpenAI SDK takes a stream that ended early for a whole one (WIRE 2).
    """
    events, error = WholeEvents(end), "ended early"
    async with stack:
        try:
            async for piece, _ in reply.content.iter_chunks():
                if piece:
                    if b"data:" in piece or live.first_at is not None:
                        live.token()
                    if whole := events.feed(piece):
                        yield whole
            if rest := events.finish():
                yield rest
        except (aiohttp.ClientError, TimeoutError) as broken:
            error = type(broken).__name__
        if not events.is_done:
            log.warning("stream.broken", error=error)
            yield end.broken()
