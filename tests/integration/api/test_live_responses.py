"""`/v1/responses` without `background`: passed through like any live request, with a stream that ends in its own way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from tests.integration.api.conftest import MODEL, Api
from tests.integration.api.test_gateway import register
from tests.upstream import Upstream
from workers.engines.echo import response

TEXT = "hello"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def events(*, last: str = "response.completed") -> list[dict[str, Any]]:
    """A response of one message as an engine streams it."""
    whole = json.loads(response(MODEL, TEXT, 3))
    begun = whole | {"status": "in_progress", "output": []}
    item, place = whole["output"][0], {"item_id": "msg-echo", "output_index": 0, "content_index": 0}
    part = item["content"][0]
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        {"type": "response.output_text.delta", **place, "delta": TEXT, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": last, "response": whole},
    ]
    return [{"sequence_number": n} | one for n, one in enumerate(told)]


def written(told: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in told)


def answers(data: bytes, *, is_torn: bool = False) -> Any:
    async def handle(request: web.Request, _: bytes) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        await reply.write(data)
        if is_torn:
            assert request.transport is not None
            request.transport.close()
        return reply

    return handle


def test_bytes_pass_both_ways(api: Api, upstream: Upstream) -> None:
    register(api, "one", upstream.url)
    answer = response(MODEL, TEXT, 3)

    async def handle(_: web.Request, __: bytes) -> web.Response:
        return web.Response(body=answer, content_type="application/json")

    upstream.handler = handle
    body = b'{ "temperature":1.0,"model":"tiny-chat", "input":"\\u00e9\xc3\xa9", "background":false, "store":true,"x":12345678901234567890 }'

    reply = api.http().post("/v1/responses", content=body, headers={"content-type": "application/json"})

    assert (reply.status_code, reply.content) == (200, answer)
    assert upstream.bodies == [body]
    assert api.client().responses.create(model=MODEL, input="hi").output_text == TEXT


@pytest.mark.parametrize("last", ["response.completed", "response.failed", "response.incomplete"])
def test_a_stream_passes_byte_by_byte(api: Api, upstream: Upstream, last: str) -> None:
    register(api, "one", upstream.url)
    upstream.handler = answers(written(events(last=last)))
    with api.http().stream("POST", "/v1/responses", json={"model": MODEL, "input": "hi", "stream": True}) as reply:
        assert reply.read() == written(events(last=last))


def test_the_clients_helper_reads_a_stream(api: Api, upstream: Upstream) -> None:
    register(api, "one", upstream.url)
    upstream.handler = answers(written(events()))

    with api.client().responses.stream(model=MODEL, input="hi") as stream:
        assert stream.get_final_response().output_text == TEXT


HALF = b'event: response.output_text.delta\ndata: {"type":"respo'


@pytest.mark.parametrize("is_torn", [True, False], ids=["torn", "ended"])
@pytest.mark.parametrize("rest", [b"", HALF], ids=["between events", "inside of an event"])
def test_a_stream_that_breaks_off_says_so(api: Api, upstream: Upstream, rest: bytes, is_torn: bool) -> None:
    register(api, "one", upstream.url)
    upstream.handler = answers(written(events()[:5]) + rest, is_torn=is_torn)

    seen = list(api.client().responses.create(model=MODEL, input="hi", stream=True))

    assert [event.type for event in seen[:-1]] == [one["type"] for one in events()[:5]]
    last: Any = seen[-1]
    assert (last.type, last.code, last.sequence_number) == ("error", "bad_upstream", 5)


def test_it_is_live_traffic_for_its_scope(api: Api, upstream: Upstream) -> None:
    register(api, "one", upstream.url)
    for key, status in ((api.key, 200), ("sk-wrong", 401)):
        assert api.http(key).post("/v1/responses", json={"model": MODEL, "input": "hi"}).status_code == status
    assert api.http().post("/v1/responses", json={"model": "nobody", "input": "hi"}).status_code == 404
