"""A server with OpenAI's surface and nothing of ours: a proxy to our own that hides what we add."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2

from slackwater.wire.errors import envelope
from tests.compat.proxy import HOP, Call, Send, proxied

ROUTES = re.compile(
    r"(GET /v1/models(/[^/]+)?|(GET|POST) /v1/(files|batches)|(GET|DELETE) /v1/files/[^/]+|GET /v1/files/[^/]+/content"
    r"|GET /v1/batches/[^/]+|POST /v1/batches/[^/]+/cancel|POST /v1/uploads(/[^/]+/(parts|complete|cancel))?|GET /readyz)"
)
ASKED = ("input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after")
SHOWN = (
    "id", "object", "endpoint", "model", "errors", "input_file_id", "completion_window", "status", "output_file_id", "error_file_id",
    "created_at", "expires_at", "in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at", "request_counts", "usage", "metadata",
)  # fmt: skip
OURS = ("idempotency-key", "range", "if-range", "if-none-match", "etag", "accept-ranges", "idempotent-replayed")
FINAL = ("completed", "failed", "expired", "cancelled")


@contextmanager
def plain(url: str, *, strict: bool) -> Iterator[str]:
    """`strict` refuses members it does not know, by name, as OpenAI does; else they are dropped in silence."""

    def serve(call: Call, send: Send) -> httpx2.Response:
        parts = urlsplit(call.path)
        if not ROUTES.fullmatch(f"{call.method} {parts.path}"):
            return _answer(404, envelope("Invalid URL.", "invalid_request_error"))
        kept = [pair for pair in parse_qsl(parts.query) if pair[0] in ("after", "limit", "order", "purpose")]
        headers = _without(call.headers)
        call = replace(call, path=f"{parts.path}?{urlencode(kept)}" if kept else parts.path, headers=headers)
        if (call.method, parts.path) == ("POST", "/v1/batches"):
            asked = _asked(call, strict=strict)
            if isinstance(asked, httpx2.Response):
                return asked
            call = asked
        return _shown(send(call), is_batch=parts.path.startswith("/v1/batches"))

    with proxied(url, serve) as address:
        yield address


def _asked(call: Call, *, strict: bool) -> Call | httpx2.Response:
    """A create with OpenAI's members; bodies that are no plain object go on as they are, to be refused."""
    try:
        body = json.loads(call.body)
    except (ValueError, RecursionError):
        return call
    if not isinstance(body, dict):
        return call
    unknown = [name for name in body if name not in ASKED]
    if unknown and strict:
        return _refused(f"Unknown parameter: '{unknown[0]}'.", unknown[0], "unknown_parameter")
    if re.fullmatch(r"[0-9]+[smhd]", str(body.get("completion_window"))) and body["completion_window"] != "24h":
        return _refused("Supported is '24h'.", "completion_window", "invalid_value")
    if not unknown:
        return call
    return replace(call, body=json.dumps({name: body[name] for name in ASKED if name in body}).encode())


def _refused(message: str, param: str, code: str) -> httpx2.Response:
    return _answer(400, envelope(message, "invalid_request_error", param=param, code=code))


def _shown(reply: httpx2.Response, *, is_batch: bool) -> httpx2.Response:
    headers = _without(reply.headers)
    if not is_batch or reply.status_code != 200:
        return httpx2.Response(reply.status_code, headers=headers, content=reply.content)
    value = reply.json()
    bare = value | {"data": [_batch(one) for one in value["data"]]} if value["object"] == "list" else _batch(value)
    return _answer(200, bare, headers)


def _batch(value: Mapping[str, Any]) -> dict[str, Any]:
    batch = {name: value[name] for name in SHOWN}
    batch["request_counts"] = {name: value["request_counts"][name] for name in ("total", "completed", "failed")}
    if batch["status"] not in FINAL:
        batch |= {"output_file_id": None, "error_file_id": None}
    return batch


def _without(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in (*OURS, *HOP)}


def _answer(status: int, value: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> httpx2.Response:
    sent = {"x-request-id": f"req_{id(value):x}"} | dict(headers or {}) | {"content-type": "application/json"}
    return httpx2.Response(status, headers=sent, content=json.dumps(value).encode())
