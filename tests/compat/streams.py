"""A model server whose streams end as the name of the model says, and the models as an instance of the server under test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from aiohttp import web

from slackwater import ids
from tests.upstream import Upstream

CHUNK = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%s"}}]}'
ERROR = '{"error":{"message":"out of memory","type":"server_error","param":null,"code":"engine_died"}}'
HALF = CHUNK[:50]
DONE = "data: [DONE]\n\n"
TAILS = {
    "stream-whole": DONE,
    "stream-torn-between-events": "",
    "stream-torn-inside-of-an-event": f"data: {HALF}",
    "stream-ending-early": "",
    "stream-ending-inside-of-an-event": f"data: {HALF}",
    "stream-with-an-error": f"data: {ERROR}\n\n",
}


RESPONSE_TAILS = {
    "stream-whole": 'event: response.completed\ndata: {"type":"response.completed","sequence_number":3,"response":%s}\n\n',
    "stream-torn-between-events": "",
    "stream-torn-inside-of-an-event": 'event: response.output_text.delta\ndata: {"type":"resp',
    "stream-ending-early": "",
    "stream-ending-inside-of-an-event": 'event: response.output_text.delta\ndata: {"type":"resp',
    "stream-with-an-error": 'event: error\ndata: {"type":"error","code":"engine_died","message":"no","param":null,"sequence_number":3}\n\n',
}
RESPONSE = json.dumps(
    {"id": "resp_c", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": [],
     "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
)  # fmt: skip


def _response_events(model: str) -> str:
    created = (
        f'event: response.created\ndata: {{"type":"response.created","sequence_number":0,"response":{RESPONSE}}}\n\n'
    )
    told = "".join(
        "event: response.output_text.delta\n"
        f'data: {{"type":"response.output_text.delta","sequence_number":{n},"delta":"{word}","item_id":"i","output_index":0,"content_index":0}}\n\n'
        for n, word in ((1, "a"), (2, "b"))
    )
    return created + told + RESPONSE_TAILS[model].replace("%s", RESPONSE)


def _chat_events(model: str) -> str:
    return "".join(f"data: {CHUNK % word}\n\n" for word in "ab") + TAILS[model]


async def _stream(request: web.Request, body: bytes) -> web.StreamResponse:
    model = json.loads(body)["model"]
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    events = _response_events if request.path == "/v1/responses" else _chat_events
    await reply.write(events(model).encode())
    if model.startswith("stream-torn"):
        assert request.transport is not None
        request.transport.close()
    return reply


@contextmanager
def streams(dsn: str) -> Iterator[None]:
    """The server runs inside of the block; its models are the keys of TAILS."""
    with Upstream(handler=_stream, models=tuple(TAILS)) as upstream, psycopg.connect(dsn, autocommit=True) as rows:
        rows.execute(
            "WITH i AS (INSERT INTO instance (public_id, name, engine, url) VALUES (%s, 'streams', 'openai_http', %s) RETURNING id),"
            " m AS (INSERT INTO model (name) SELECT unnest(%s::text[]) RETURNING id, name)"
            " INSERT INTO instance_model SELECT i.id, m.id, m.name FROM i, m",
            (ids.new("inst_"), upstream.url, list(TAILS)),
        )
        yield
