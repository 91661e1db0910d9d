"""A webhook receiver: it takes what is signed with its secret, and nothing else."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread
from typing import Any

from standardwebhooks.webhooks import Webhook


class Receiver:
    """Listens on a free port of 127.0.0.1 in a thread of its own. Set `secret` as soon as it is known: until then it asks to retry."""

    def __init__(self) -> None:
        self.secret: str | None = None
        self._events: Queue[dict[str, Any]] = Queue()
        self._server = HTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Receiver:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, seconds: float) -> dict[str, Any]:
        """The next event whose signature is right; queue.Empty when none comes in time."""
        return self._events.get(timeout=seconds)

    def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver._take(body, dict(self.headers.items())))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return None

        return Handler

    def _take(self, body: bytes, headers: dict[str, str]) -> int:
        if self.secret is None:
            return 503
        try:
            Webhook(self.secret).verify(body.decode(), headers)
        except Exception:
            return 400
        self._events.put(json.loads(body))
        return 204
