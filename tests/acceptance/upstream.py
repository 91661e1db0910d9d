"""A model server with one model behind a key, for what `slackwater up --engine URL` asks of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": "far-away"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": asked["model"]}
        self._answer(200, head | {"choices": [choice], "usage": usage})

    def _answer(self, status: int, value: dict[str, object]) -> None:
        if self.headers["authorization"] != "Bearer upstream-key":
            status, value = 401, {}
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving() -> Iterator[str]:
    """The URL of a model server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Upstream) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()
