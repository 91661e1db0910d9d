"""The engine for upstreams, against a real server that behaves and misbehaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web

from scheduler.retry import Answered, Unanswered, Why
from slackwater.errors import Unavailable
from tests.upstream import ANSWER, Upstream
from tests.waiting import until_async
from workers.engines.base import Call, EngineLoad
from workers.engines.openai_http import UpstreamEngine, load_of, seconds_of

BODY = b'{ "model":"tiny-chat","x":1.0,"messages":[] }'
CALL = Call("req_1", "/v1/chat/completions", "tiny-chat", BODY)
VLLM = 'vllm:num_requests_running{model_name="m"} 3.0\nvllm:num_requests_waiting{model_name="m"} 2.0\nvllm:%s{model_name="m"} 0.25\n'


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def engine(upstream: Upstream) -> AsyncIterator[UpstreamEngine]:
    engine = await UpstreamEngine.open(upstream.url, "sk-secret", most=4, timeout_seconds=20)
    yield engine
    await engine.close()


async def test_the_bytes_go_out_as_they_are(upstream: Upstream, engine: UpstreamEngine) -> None:
    ending = await engine.run(CALL)

    assert ending == Answered(200, ANSWER, None, None)
    assert upstream.bodies == [BODY]
    assert upstream.headers[0]["authorization"] == "Bearer sk-secret"
    assert upstream.headers[0]["x-request-id"] == "req_1"


async def test_a_base_url_may_end_in_v1(upstream: Upstream) -> None:
    engine = await UpstreamEngine.open(upstream.url + "/v1/", None, most=1, timeout_seconds=20)

    assert isinstance(await engine.run(CALL), Answered)
    assert "authorization" not in upstream.headers[0]
    await engine.close()


async def test_retry_after_is_read(upstream: Upstream, engine: UpstreamEngine) -> None:
    async def busy(_: Any, __: bytes) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7"}, text="{}")

    upstream.handler = busy

    assert await engine.run(CALL) == Answered(429, b"{}", 7.0, None)


async def test_a_redirect_is_an_answer_and_is_not_followed(upstream: Upstream, engine: UpstreamEngine) -> None:
    async def elsewhere(request: web.Request, _: bytes) -> web.Response:
        return web.Response(status=307, headers={"Location": "/v1/other"})

    upstream.handler = elsewhere
    ending = await engine.run(CALL)

    assert isinstance(ending, Answered)
    assert ending.status == 307
    assert len(upstream.bodies) == 1


async def test_a_cut_answer_is_no_answer(upstream: Upstream, engine: UpstreamEngine) -> None:
    async def cut(request: web.Request, _: bytes) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
        await reply.prepare(request)
        await reply.write(b'{"half":')
        assert request.transport is not None
        request.transport.close()
        return reply

    upstream.handler = cut

    assert await engine.run(CALL) == Unanswered(Why.BAD_UPSTREAM)


async def test_a_server_that_hangs_up_on_a_request_dropped_it(upstream: Upstream, engine: UpstreamEngine) -> None:
    async def hang_up(request: web.Request, _: bytes) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    upstream.handler = hang_up

    assert await engine.run(CALL) == Unanswered(Why.DROPPED)


async def test_a_dead_server_is_unreachable() -> None:
    engine = await UpstreamEngine.open("http://127.0.0.1:9", None, most=1, timeout_seconds=20)

    assert await engine.run(CALL) == Unanswered(Why.UNREACHABLE)
    with pytest.raises(Unavailable):
        await engine.load()
    assert not await engine.serves("tiny-chat")
    await engine.close()


async def test_too_long_is_timed_out(upstream: Upstream) -> None:
    release = threading.Event()

    async def never(_: Any, __: bytes) -> web.Response:
        while not release.is_set():
            await asyncio.sleep(0.01)
        return web.Response()

    upstream.handler = never
    engine = await UpstreamEngine.open(upstream.url, None, most=1, timeout_seconds=0.3)

    assert await engine.run(CALL) == Unanswered(Why.TIMED_OUT)
    release.set()
    await engine.close()


async def test_cancelling_ends_the_request_in_the_server(upstream: Upstream, engine: UpstreamEngine) -> None:
    begun = threading.Event()

    async def long(_: Any, __: bytes) -> web.Response:
        begun.set()
        await asyncio.sleep(60)
        return web.Response()

    upstream.handler = long
    task = asyncio.create_task(engine.run(CALL))
    assert await asyncio.to_thread(begun.wait, 20)
    task.cancel()

    assert await asyncio.to_thread(upstream.aborted.wait, 20)


async def test_connections_are_bounded_and_kept(upstream: Upstream) -> None:
    """Of twelve calls at once as many go out as there are slots and two for the probes; the others go out later, on the same connections."""
    release = threading.Event()
    running: list[bytes] = []
    peers: set[object] = set()
    most = 0

    async def wait(request: web.Request, body: bytes) -> web.Response:
        nonlocal most
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        running.append(body)
        most = max(most, len(running))
        while not release.is_set():
            await asyncio.sleep(0.01)
        running.pop()
        return web.Response(body=ANSWER)

    upstream.handler = wait
    engine = await UpstreamEngine.open(upstream.url, None, most=4, timeout_seconds=20)
    calls = [asyncio.create_task(engine.run(CALL)) for _ in range(12)]
    await until_async(lambda: len(running) == 6)
    release.set()

    assert all(isinstance(ending, Answered) for ending in await asyncio.gather(*calls))
    assert (most, len(peers), len(upstream.bodies)) == (6, 6, 12)
    await engine.close()


async def test_the_probe_asks_for_the_model(engine: UpstreamEngine) -> None:
    assert await engine.serves("tiny-chat")
    assert not await engine.serves("another")


@pytest.mark.parametrize("name", ["kv_cache_usage_perc", "gpu_cache_usage_perc"])
async def test_vllm_tells_its_load_under_both_names(upstream: Upstream, engine: UpstreamEngine, name: str) -> None:
    upstream.metrics = VLLM % name

    assert await engine.load() == EngineLoad(3, 2, 0.25)


async def test_a_server_without_metrics_is_known_to_answer_only(engine: UpstreamEngine) -> None:
    assert await engine.load() == EngineLoad(None, None, None)


@pytest.mark.parametrize(
    ("page", "load"),
    [
        ("sglang:num_running_reqs 4\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5\n", EngineLoad(4, 1, 0.5)),
        ("llamacpp:requests_processing 2\nllamacpp:requests_deferred 3\n", EngineLoad(2, 3, None)),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n", EngineLoad(None, None, None)),
        (
            "vllm:iteration_tokens_total_sum 900\nvllm:iteration_tokens_total_count 30\n"
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1\n',
            EngineLoad(iterations=30, iteration_tokens=900, kv_capacity_tokens=1600),
        ),
        ("this is not a page {", EngineLoad(None, None, None)),
        ("", EngineLoad(None, None, None)),
    ],
)
def test_other_servers_pages(page: str, load: EngineLoad) -> None:
    assert load_of(page) == load


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("2", 2.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0)],
)
def test_retry_after_in_all_its_forms(header: str | None, seconds: float | None) -> None:
    assert seconds_of(header, now=60.0) == seconds
