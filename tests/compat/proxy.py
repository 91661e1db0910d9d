"""A proxy to a server, whose test decides what becomes of each call and of its reply."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

HOP = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding")


@dataclass(frozen=True)
class Call:
    """What a client sent; `path` has the query, the names of `headers` are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Send = Callable[[Call], httpx2.Response]
Serve = Callable[[Call, Send], httpx2.Response]


@contextmanager
def proxied(url: str, serve: Serve) -> Iterator[str]:
    """The URL of a proxy that answers each call with what `serve` makes of it; `Send` asks the server at `url`."""
    client = httpx2.Client(base_url=url, timeout=60, limits=httpx2.Limits(max_connections=64))

    def send(call: Call) -> httpx2.Response:
        try:
            return client.request(call.method, call.path, content=call.body, headers=call.headers)
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return httpx2.Response(400)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            sent = {name.lower(): value for name, value in self.headers.items() if name.lower() not in HOP}
            reply = serve(Call(self.command, self.path, sent, body), send)
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
