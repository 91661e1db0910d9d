"""Checks of extensions find the fault they are there for: each is run against our server with that one fault put in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from tests.compat.conftest import Running
from tests.compat.proxy import HOP, Call, Send, Serve, proxied
from tests.compat.test_conformance import conformance

Value = dict[str, Any]


def _dropping(header: str = "", *, query: str = "", member: str = "") -> Serve:
    """A server to which this header, query parameter or member of a PATCH means nothing."""

    def serve(call: Call, send: Send) -> httpx2.Response:
        parts = urlsplit(call.path)
        kept = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] != query])
        headers = {name: value for name, value in call.headers.items() if name != header}
        body = call.body
        if call.method == "PATCH" and member:
            body = json.dumps({name: value for name, value in json.loads(body).items() if name != member}).encode()
        return send(replace(call, path=f"{parts.path}?{kept}" if kept else parts.path, headers=headers, body=body))

    return serve


def _changing(path: str, change: Callable[[httpx2.Response], httpx2.Response]) -> Serve:
    """A server that answers otherwise where a path ends so."""

    def serve(call: Call, send: Send) -> httpx2.Response:
        reply = send(call)
        return change(reply) if urlsplit(call.path).path.endswith(path) else reply

    return serve


def _answer(
    reply: httpx2.Response, *, content: bytes | None = None, status: int = 0, **headers: str
) -> httpx2.Response:
    kept = {name: value for name, value in reply.headers.items() if name.lower() not in HOP}
    body = reply.content if content is None else content
    return httpx2.Response(status or reply.status_code, headers=kept | headers, content=body)


def _with(**members: Any) -> Callable[[httpx2.Response], httpx2.Response]:
    def change(reply: httpx2.Response) -> httpx2.Response:
        return _answer(reply, content=json.dumps(reply.json() | members).encode()) if reply.is_success else reply

    return change


def _cut(reply: httpx2.Response) -> httpx2.Response:
    return _answer(reply, content=reply.content[:-1]) if reply.status_code == 206 else reply


def _reversed(reply: httpx2.Response) -> httpx2.Response:
    return _answer(reply, content=b"".join(reply.content.splitlines(keepends=True)[::-1]))


def _twice(reply: httpx2.Response) -> httpx2.Response:
    return _answer(reply, content=reply.content * 2)


TAGS = itertools.count()
FAULTS: Mapping[str, Serve] = {
    "ext.change.priority_and_window": _dropping(member="completion_window"),
    "ext.etag.of_an_output": _changing("/content", lambda reply: _answer(reply, etag=f'"{next(TAGS)}"')),
    "ext.events.resume": _dropping("last-event-id"),
    "ext.events.tell_every_status": _changing("/events", lambda reply: _answer(reply, content=reply.content[:200])),
    "ext.idempotency.another_body_is_409": _changing(
        "/batches", lambda reply: _answer(reply, status=400 if reply.status_code == 409 else 0)
    ),
    "ext.list.by_metadata": _dropping(query="metadata[n]"),
    "ext.output_in_input_order": _changing("/content", _reversed),
    "ext.partial_output.is_readable_while_in_progress": _changing("/content", _twice),
    "ext.priority": _changing("/batches", _with(priority=0)),
    "ext.range.of_a_final_output": _changing("/content", _cut),
    "ext.requests.tell_of_one": _changing("/r3", _with(status="failed")),
    "ext.results.resume_after_a_line": _dropping(query="after"),
    "ext.results.status_filters": _dropping(query="status"),
    "ext.retry.makes_a_new_batch": _changing("/retry", _with(retry_of=None)),
    "ext.validate.tells_every_error": _changing("/validate", _with(valid=True)),
    "ext.webhook_metadata": _changing("/batches", _with(webhook_metadata={})),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found(running: Running, name: str) -> None:
    with proxied(running.url, FAULTS[name]) as url:
        code, out = conformance(url, running.key, "--ext", "--json", "--only", name)

    (found,) = json.loads(out)["checks"]
    assert (found["verdict"], code) == ("failed", 1), found
