"""One check's conversation with the server under test, and what checks share because it takes long to make."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from httpx2 import Client, Response

from slackwater.conformance.expect import holds, ok, told

CHAT: Final = "/v1/chat/completions"
MANY: Final = 4_000
FINAL: Final = ("completed", "failed", "expired", "cancelled")
POLL_SECONDS: Final = 0.1
NO_BATCH: Final = "batch_" + "0" * 32
NO_FILE: Final = "file-" + "0" * 32

Value = Any


@dataclass
class Shared:
    """The server, and values that are made once however many checks ask."""

    client: Client
    model: str
    wait_seconds: float = 120.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: dict[str, tuple[threading.Lock, list[Value]]] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], Value]) -> Value:
        """The value of that name, made by the first who asks; others wait for it."""
        with self._lock:
            lock, made = self._made.setdefault(name, (threading.Lock(), []))
        with lock:
            if not made:
                made.append(make())
        return made[0]


@dataclass
class Session:
    """What a check speaks through. `answered` keeps each reply in one line."""

    shared: Shared
    answered: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.shared.model

    def ask(self, method: str, path: str, **options: Any) -> Response:
        """Send a request and read its reply."""
        reply = self.shared.client.request(method, path, **options)
        self.answered.append(told(reply))
        return reply

    def get(self, path: str, **options: Any) -> Response:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: object = None, **options: Any) -> Response:
        return self.ask("POST", path, **({} if body is None else {"json": body}), **options)

    def post_raw(self, path: str, body: bytes, **headers: str) -> Response:
        """A body as these bytes, declared as JSON."""
        return self.ask("POST", path, content=body, headers={"content-type": "application/json", **headers})

    def upload(
        self,
        data: bytes,
        fields: Mapping[str, str] | None = None,
        *,
        name: str = "in.jsonl",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """`POST /v1/files` as the SDK sends it: the fields, then the file as an octet stream."""
        form = {"purpose": "batch"} if fields is None else dict(fields)
        files = {"file": (name, data, "application/octet-stream")}
        return self.ask("POST", "/v1/files", data=form, files=files, headers=headers)

    def file_of(self, data: bytes) -> str:
        """The id of a new batch input file."""
        return str(ok(self.upload(data))["id"])

    def create(self, data: bytes | None = None, **members: Any) -> Response:
        """`POST /v1/batches` over `data` (one good line unless given); `members` replace those of the body, None drops one."""
        body: dict[str, Any] = {"endpoint": CHAT, "completion_window": "24h"} | members
        if "input_file_id" not in members:
            body["input_file_id"] = self.file_of(self.lines(1) if data is None else data)
        return self.post("/v1/batches", {name: value for name, value in body.items() if value is not None})

    def batch(self, batch_id: str) -> dict[str, Any]:
        return ok(self.get(f"/v1/batches/{batch_id}"))

    def until(self, batch_id: str, fact: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The batch once `fact` is true of it; a mismatch if that does not happen within the limit."""
        ends = time.monotonic() + self.shared.wait_seconds
        while not fact(batch := self.batch(batch_id)):
            holds(time.monotonic() < ends, f"still {batch['status']} after {self.shared.wait_seconds:g} s")
            time.sleep(POLL_SECONDS)
        return batch

    def final(self, batch_id: str) -> dict[str, Any]:
        """The batch once its status is one of the four final ones."""
        return self.until(batch_id, lambda batch: batch["status"] in FINAL)

    def run(self, data: bytes, **members: Any) -> dict[str, Any]:
        """Create a batch over `data` and wait for its end."""
        return self.final(ok(self.create(data, **members))["id"])

    def content(self, file_id: str, **headers: str) -> Response:
        return self.get(f"/v1/files/{file_id}/content", headers=headers)

    def output(self, batch: Mapping[str, Any], side: str = "output_file_id") -> list[dict[str, Any]]:
        """The lines of one side of a batch, parsed; split at LF only."""
        holds(batch[side], f"{side} is {batch[side]!r}")
        reply = self.content(batch[side])
        holds(reply.status_code == 200, told(reply))
        return [json.loads(line) for line in reply.content.split(b"\n") if line]

    def line(self, custom_id: str = "r", text: str = "Say hi.", **members: Any) -> dict[str, Any]:
        """A good request line as a value; `members` go to the top level."""
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": 8}
        return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body} | members

    def lines(self, count: int) -> bytes:
        """A file of good lines."""
        return jsonl(self.line(f"r{n}") for n in range(count))

    def many(self) -> str:
        """The id of a file of 4,000 good lines, the same for all checks."""
        return str(self.shared.once("many", lambda: self.file_of(self.lines(MANY))))

    def completed(self) -> dict[str, Any]:
        """A completed batch of five lines, the same for all checks. Never change it."""
        return dict(self.shared.once("completed", self._completed))

    def _completed(self) -> dict[str, Any]:
        batch = self.run(self.lines(5), metadata={"kept": "as it is"})
        holds(batch["status"] == "completed", f"a good batch ended as {batch['status']}: {batch.get('errors')}")
        return batch

    def cancelled(self) -> dict[str, Any]:
        """A cancelled batch, the same for all checks."""
        return dict(self.shared.once("cancelled", self._cancelled))

    def _cancelled(self) -> dict[str, Any]:
        """Cancelled once it was planned: before that there is no request that could be told of."""
        batch_id = ok(self.create(self.lines(MANY)))["id"]
        begun = self.until(batch_id, lambda batch: batch["status"] != "validating")
        holds(begun["status"] == "in_progress", f"{MANY} lines are done too soon to be cancelled: {begun['status']}")
        ok(self.post(f"/v1/batches/{batch_id}/cancel"))
        return self.final(batch_id)

    def failed(self) -> dict[str, Any]:
        """A batch whose file was refused, the same for all checks."""
        return dict(self.shared.once("failed", lambda: self.run(b"no JSON\n" + self.lines(1))))

    def small_files(self, count: int) -> Sequence[str]:
        """Ids of files that were uploaded one after the other, oldest first; they are not deleted."""
        make = lambda: [self.file_of(b'{"n": %d}\n' % n) for n in range(count)]  # noqa: E731
        return list(self.shared.once(f"files-{count}", make))


def jsonl(values: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)
