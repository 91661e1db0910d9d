"""A proxy with a seeded fault, to see that it is found: one tenant's key reads another's batches."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

BATCH = re.compile(r"/v1/batches/[^/?]+")
HOP = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding")


@contextmanager
def leaking(url: str, owner: str, peer: str) -> Iterator[str]:
    """The URL of a proxy to `url` that takes `peer` for `owner` on `GET /v1/batches/{id}`."""
    client = httpx2.Client(base_url=url, timeout=30)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            sent = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            if self.command == "GET" and BATCH.fullmatch(self.path):
                sent = {name: value.replace(peer, owner) for name, value in sent.items()}
            try:
                reply = client.request(self.command, self.path, content=body, headers=sent)
            except (httpx2.HTTPError, httpx2.InvalidURL):
                reply = httpx2.Response(400)
            self.send_response(reply.status_code)
            for name, value in reply.headers.items():
                if name not in HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self.do_GET
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        client.close()
