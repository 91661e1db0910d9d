"""Live traffic through the api: bytes pass as they are, figures tell what runs, a broken stream says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from aiohttp import web
from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater.sealing import Sealer
from slackwater.tenancy import instances, models
from slackwater.tenancy.instances import NewInstance
from tests.integration.api.conftest import MASTER_KEY, MODEL, Api
from tests.upstream import ANSWER, Upstream, streaming
from tests.waiting import until

CHUNK = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%s"}}]}'
MESSAGES: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def register(api: Api, name: str, url: str, served: dict[str, str] | None = None, api_key: str | None = None) -> None:
    import base64

    new = NewInstance(name=name, models=served or {MODEL: MODEL}, url=url, api_key=api_key)
    api.admin(lambda connection: instances.create(connection, new, Sealer(base64.b64decode(MASTER_KEY))))


def figures(worker: Connection[TupleRow]) -> tuple[Any, ...]:
    row = worker.execute(
        "SELECT running, waiting, ttft_p99_seconds IS NOT NULL, itl_p99_seconds IS NOT NULL FROM live_load"
    ).fetchone()
    return row or ()


def test_bytes_pass_both_ways(api: Api, upstream: Upstream) -> None:
    register(api, "one", upstream.url, api_key="sk-upstream")
    body = b'{ "temperature":1.0,"model":"tiny-chat", "messages":[{"content":"\\u00e9\xc3\xa9","role":"user"}],"x":12345678901234567890 }'

    reply = api.http().post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})

    assert (reply.status_code, reply.content) == (200, ANSWER)
    assert upstream.bodies == [body]
    assert upstream.headers[0]["authorization"] == "Bearer sk-upstream"


def test_an_alias_changes_the_models_name_only(api: Api, upstream: Upstream) -> None:
    register(api, "one", upstream.url + "/v1", {MODEL: "org/real-name"})

    api.http().post("/v1/chat/completions", content=b'{"a":1.0,"model":"tiny-chat","messages":[]}')

    assert upstream.bodies == [b'{"a":1.0,"model":"org/real-name","messages":[]}']


def test_a_stream_passes_and_is_counted(api: Api, upstream: Upstream, worker: Connection[TupleRow]) -> None:
    register(api, "one", upstream.url)
    hold = threading.Event()
    upstream.handler = streaming([CHUNK % "a", CHUNK % "b", "[DONE]"], hold=hold)
    stream = api.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    said = [next(stream).choices[0].delta.content]
    until(lambda: figures(worker)[:3] == (1, 0, True))
    hold.set()
    said += [chunk.choices[0].delta.content for chunk in stream]

    assert said == ["a", "b"]
    until(lambda: figures(worker)[:2] == (0, 0))


def test_a_request_waits_until_its_first_token(api: Api, upstream: Upstream, worker: Connection[TupleRow]) -> None:
    register(api, "one", upstream.url)
    release = threading.Event()

    async def late(request: Any, body: bytes) -> Any:
        import asyncio

        while not release.is_set():
            await asyncio.sleep(0.01)
        return await streaming([CHUNK % "a", "[DONE]"])(request, body)

    upstream.handler = late
    thread = threading.Thread(
        target=lambda: list(api.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    )
    thread.start()
    until(lambda: figures(worker)[:2] == (0, 1))
    release.set()
    thread.join(60)
    until(lambda: figures(worker)[:3] == (0, 0, True))


def test_a_broken_stream_raises_in_the_client(api: Api, upstream: Upstream) -> None:
    register(api, "one", upstream.url)
    upstream.handler = streaming([CHUNK % "a"], breaks=True)

    with pytest.raises(openai.APIError) as caught:
        list(api.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))

    assert caught.value.code == "bad_upstream"


def test_half_an_event_is_dropped_before_the_error(api: Api, upstream: Upstream) -> None:
    """Passed on, the half would be read as JSON and hide the error."""
    from aiohttp import web

    async def breaks(request: web.Request, _: bytes) -> Any:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        await reply.write(f"data: {CHUNK % 'a'}\n\ndata: {(CHUNK % 'b')[:40]}".encode())
        assert request.transport is not None
        request.transport.close()
        return reply

    register(api, "one", upstream.url)
    upstream.handler = breaks
    stream = api.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert next(stream).choices[0].delta.content == "a"

    with pytest.raises(openai.APIError) as caught:
        next(stream)

    assert caught.value.code == "bad_upstream"


def test_a_stream_that_ends_without_its_mark_has_broken(api: Api, upstream: Upstream) -> None:
    """A proxy before a dead engine may end it cleanly; the client would take what came for the whole answer."""
    register(api, "one", upstream.url)
    upstream.handler = streaming([CHUNK % "a"])

    with pytest.raises(openai.APIError) as caught:
        list(api.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))

    assert caught.value.code == "bad_upstream"


def test_a_client_that_leaves_aborts_the_request(api: Api, upstream: Upstream, worker: Connection[TupleRow]) -> None:
    register(api, "one", upstream.url)
    upstream.handler = streaming([CHUNK % "a", CHUNK % "b"], hold=threading.Event())
    stream = api.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    next(stream)

    stream.close()

    assert upstream.aborted.wait(60)
    until(lambda: figures(worker)[:2] == (0, 0))


def test_another_instance_answers_when_one_is_gone(api: Api, upstream: Upstream) -> None:
    register(api, "gone", "http://127.0.0.1:9")
    register(api, "one", upstream.url)

    reply = api.client().chat.completions.create(model=MODEL, messages=MESSAGES)

    assert reply.choices[0].message.content == "hello"


@pytest.mark.parametrize(("model", "status"), [("nobody", 404), (MODEL, 503)])
def test_what_nobody_serves_is_refused(api: Api, model: str, status: int) -> None:
    reply = api.http().post("/v1/chat/completions", json={"model": model, "messages": []})

    assert (reply.status_code, reply.json()["error"]["param"]) == (status, "model")


def test_a_model_of_others_does_not_exist(api: Api, upstream: Upstream) -> None:
    register(api, "one", upstream.url, {"secret-model": "secret-model"})
    api.admin(lambda connection: models.ensure(connection, "secret-model", is_open=False))

    reply = api.http().post("/v1/chat/completions", json={"model": "secret-model", "messages": []})
    nobody = api.http().post("/v1/chat/completions", json={"model": "nobody", "messages": []})

    assert (reply.status_code, reply.content) == (404, nobody.content)
    assert upstream.bodies == []


def test_the_instances_refusals_pass_through(api: Api, upstream: Upstream) -> None:
    from aiohttp import web

    async def refuse(_: Any, __: bytes) -> Any:
        return web.json_response({"error": {"message": "no", "type": "x", "param": "p", "code": "c"}}, status=400)

    register(api, "one", upstream.url)
    upstream.handler = refuse

    with pytest.raises(openai.BadRequestError) as caught:
        api.client().chat.completions.create(model=MODEL, messages=MESSAGES)

    assert (caught.value.code, caught.value.param) == ("c", "p")


def test_an_answer_that_breaks_off_is_a_502(api: Api, upstream: Upstream) -> None:
    """Whole, not streamed: no byte of it has reached the client, and the fault is not ours."""
    register(api, "one", upstream.url)

    async def cut(request: web.Request, _: bytes) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-length": "1000", "content-type": "application/json"})
        await reply.prepare(request)
        await reply.write(ANSWER[:50])
        assert request.transport is not None
        request.transport.close()
        return reply

    upstream.handler = cut

    reply = api.http().post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})

    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "bad_upstream"
