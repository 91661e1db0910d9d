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


async def _stream(request: web.Request, body: bytes) -> web.StreamResponse:
    model = json.loads(body)["model"]
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    await reply.write("".join(f"data: {CHUNK % word}\n\n" for word in "ab").encode() + TAILS[model].encode())
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
