"""A proxy with a seeded fault, to see that it is found: one tenant's key reads another's batches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx2

from tests.compat.proxy import Call, Send, proxied

BATCH = re.compile(r"/v1/batches/[^/?]+")


@contextmanager
def leaking(url: str, owner: str, peer: str) -> Iterator[str]:
    """The URL of a proxy to `url` that takes `peer` for `owner` on `GET /v1/batches/{id}`."""

    def serve(call: Call, send: Send) -> httpx2.Response:
        if call.method == "GET" and BATCH.fullmatch(call.path):
            headers = {name: value.replace(peer, owner) for name, value in call.headers.items()}
            call = replace(call, headers=headers)
        return send(call)

    with proxied(url, serve) as address:
        yield address
