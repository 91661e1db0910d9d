"""Clients that do whatever comes to their minds to the same few objects, from a seed, while duties, a worker and a sender run beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

import httpx2
import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties import purge
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from tests.integration.api.conftest import Api
from tests.integration.api.test_files import FORM, PURPOSE, form
from tests.scenario import MODEL, chat_line

FEW: Final = 4
TICK_SECONDS: Final = 0.05
EXPECTED: Final = {200, 204, 206, 304, 404, 409, 416, 429}
HOOK: Final = {"name": "w", "url": "http://127.0.0.1:9/", "event_types": ["batch.completed", "batch.cancelled"]}
# What time does, to a few rows at once. Parts age only where their upload has expired, as they do.
TIME_PASSES: Final = (
    "UPDATE batch SET completed_at = completed_at - interval '2 min', expired_at = expired_at - interval '2 min',"
    " cancelled_at = cancelled_at - interval '2 min' WHERE state IN (3, 5, 7)",
    "UPDATE batch SET expires_at = now() WHERE id IN (SELECT id FROM batch WHERE state IN (0, 1) ORDER BY random() LIMIT 1)",
    "UPDATE file SET expires_at = now() WHERE id IN (SELECT id FROM file WHERE is_complete ORDER BY random() LIMIT 1)",
    "UPDATE upload SET expires_at = now() WHERE id IN (SELECT id FROM upload WHERE state = 0 ORDER BY random() LIMIT 1)",
    "UPDATE file f SET touched_at = now() - interval '61 min' FROM upload_part p JOIN upload u ON u.id = p.upload_id"
    " WHERE f.id = p.file_id AND NOT f.is_complete AND u.expires_at < now()",
)


@dataclass
class Objects:
    """The ids that everybody plays with: the newest few of each kind."""

    kinds: Mapping[str, deque[Any]] = field(
        default_factory=lambda: {
            kind: deque(maxlen=FEW) for kind in ("file", "batch", "upload", "endpoint", "delivery", "key")
        }
    )

    def add(self, kind: str, value: Any) -> None:
        self.kinds[kind].append(value)

    def one(self, kind: str, random: Random) -> Any:
        """One of the kind; None where there is none yet."""
        known = list(self.kinds[kind])
        return random.choice(known) if known else None


@dataclass
class Seen:
    """What the walkers saw: how often each act was answered how, and everything that nobody may see."""

    replies: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@dataclass
class Walker:
    """One client, with its own connections and its own chance."""

    api: Api
    objects: Objects
    seen: Seen
    random: Random

    def __post_init__(self) -> None:
        self.http, self.admin = self.api.http(), self.api.http(self.api.admin_key)

    def step(self) -> None:
        act = self.random.choice(ACTS)
        try:
            reply: httpx2.Response | None = act(self)
        except httpx2.RemoteProtocolError as cut:
            if act not in (read_file, read_results):
                self.seen.faults.append(f"{act.__name__}: {cut!r}")
            return
        if reply is not None:
            self.seen.replies[act.__name__, reply.status_code] += 1
            if reply.status_code not in EXPECTED:
                self.seen.faults.append(f"{act.__name__}: {reply.status_code} {reply.text}")

    def pick(self, kind: str) -> Any:
        return self.objects.one(kind, self.random)

    def learn(self, kind: str, reply: httpx2.Response) -> httpx2.Response:
        if reply.is_success:
            self.objects.add(kind, reply.json()["id"])
        return reply

    def key(self) -> dict[str, str]:
        """Now and then a create is one that was sent before."""
        return {"idempotency-key": f"k{self.random.randrange(4)}"} if self.random.random() < 0.2 else {}

    def lines(self) -> list[bytes]:
        said = self.random.choice(["hi", "hi", "echo: sleep=0.2", "echo:status=400 times=9"])
        return [chat_line(f"r{n}", said) for n in range(self.random.randrange(1, 80))]


def upload_file(w: Walker) -> httpx2.Response:
    data = b"\n".join(w.lines()).decode()
    body = form(PURPOSE, ('name="file"; filename="in.jsonl"', data))
    return w.learn("file", w.http.post("/v1/files", content=body, headers=FORM | w.key()))


def delete_file(w: Walker) -> httpx2.Response | None:
    name = w.pick("file")
    return name and w.http.delete(f"/v1/files/{name}")


def read_file(w: Walker) -> httpx2.Response | None:
    name, headers = w.pick("file"), w.random.choice([{}, {"range": "bytes=100-900"}])
    return name and w.http.get(f"/v1/files/{name}/content", headers=headers)


def create_batch(w: Walker) -> httpx2.Response | None:
    name = w.pick("file")
    body: dict[str, Any] = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": name}
    if w.random.random() < 0.3:
        body |= {"webhook": {"url": HOOK["url"]}, "output_order": "completion"}
    return name and learn_batch(w, w.http.post("/v1/batches", json=body, headers=w.key()))


def create_in_line(w: Walker) -> httpx2.Response:
    requests = ",".join(line.decode() for line in w.lines())
    body = f'{{"endpoint":"/v1/chat/completions","completion_window":"24h","requests":[{requests}]}}'
    headers = {"content-type": "application/json"} | w.key()
    return learn_batch(w, w.http.post("/v1/batches", content=body.encode(), headers=headers))


def learn_batch(w: Walker, reply: httpx2.Response) -> httpx2.Response:
    if reply.is_success:
        made = reply.json()
        for name in (made["output_file_id"], made["input_file_id"]):
            if name is not None:
                w.objects.add("file", name)
    return w.learn("batch", reply)


def see_batch(w: Walker) -> httpx2.Response | None:
    name = w.pick("batch")
    reply = name and w.http.get(f"/v1/batches/{name}")
    if reply and reply.json()["output_file_id"]:
        w.objects.add("file", reply.json()["output_file_id"])
    return reply or None


def change_batch(w: Walker) -> httpx2.Response | None:
    name = w.pick("batch")
    return name and w.http.patch(f"/v1/batches/{name}", json={"priority": w.random.randrange(3)})


def cancel_batch(w: Walker) -> httpx2.Response | None:
    name = w.pick("batch")
    return name and w.http.post(f"/v1/batches/{name}/cancel")


def retry_batch(w: Walker) -> httpx2.Response | None:
    name = w.pick("batch")
    return name and learn_batch(w, w.http.post(f"/v1/batches/{name}/retry", headers=w.key()))


def read_results(w: Walker) -> httpx2.Response | None:
    name = w.pick("batch")
    return name and w.http.get(f"/v1/batches/{name}/results", params={"limit": 50})


def see_request(w: Walker) -> httpx2.Response | None:
    name = w.pick("batch")
    return name and w.http.get(f"/v1/batches/{name}/requests/r{w.random.randrange(80)}")


def validate(w: Walker) -> httpx2.Response | None:
    name = w.pick("file")
    body = {"endpoint": "/v1/chat/completions", "input_file_id": name}
    return name and w.http.post("/v1/batches/validate", json=body)


def see_lists(w: Walker) -> httpx2.Response:
    path = w.random.choice(["files", "batches", "webhook_endpoints", "models", "instances"])
    return w.http.get(f"/v1/{path}", params={} if path in ("models", "instances") else {"limit": 5})


def start_upload(w: Walker) -> httpx2.Response:
    body = {"filename": "in.jsonl", "purpose": "batch", "bytes": 6, "mime_type": "application/jsonl"}
    reply = w.http.post("/v1/uploads", json=body, headers=w.key())
    if reply.is_success:
        w.objects.add("upload", (reply.json()["id"], []))
    return reply


def add_part(w: Walker) -> httpx2.Response | None:
    upload = w.pick("upload")
    if upload is None:
        return None
    body = form(('name="data"; filename="upload"', "{}\n"))
    reply = w.http.post(f"/v1/uploads/{upload[0]}/parts", content=body, headers=FORM | w.key())
    if reply.is_success and reply.json()["id"] not in upload[1]:
        upload[1].append(reply.json()["id"])
    return reply if reply.status_code != 413 else None  # More than twice the bytes announced.


def complete_upload(w: Walker) -> httpx2.Response | None:
    upload = w.pick("upload")
    if upload is None or len(upload[1]) < 2:
        return None
    parts = w.random.choice([upload[1][:2], upload[1][1::-1]])
    reply = w.http.post(f"/v1/uploads/{upload[0]}/complete", json={"part_ids": parts})
    if reply.is_success and reply.json()["file"]:
        w.objects.add("file", reply.json()["file"]["id"])
    return reply


def cancel_upload(w: Walker) -> httpx2.Response | None:
    upload = w.pick("upload")
    return upload and w.http.post(f"/v1/uploads/{upload[0]}/cancel")


def add_endpoint(w: Walker) -> httpx2.Response:
    return w.learn("endpoint", w.http.post("/v1/webhook_endpoints", json=HOOK))


def change_endpoint(w: Walker) -> httpx2.Response | None:
    name = w.pick("endpoint")
    changes: Sequence[dict[str, Any]] = [{"name": "x"}, {"status": "disabled"}, {"status": "enabled"}]
    return name and w.http.post(f"/v1/webhook_endpoints/{name}", json=w.random.choice(changes))


def rotate_secret(w: Walker) -> httpx2.Response | None:
    name, grace = w.pick("endpoint"), w.random.choice([0, 60])
    return name and w.http.post(f"/v1/webhook_endpoints/{name}/rotate_secret", json={"grace_seconds": grace})


def remove_endpoint(w: Walker) -> httpx2.Response | None:
    name = w.pick("endpoint")
    return name and w.http.delete(f"/v1/webhook_endpoints/{name}")


def see_deliveries(w: Walker) -> httpx2.Response | None:
    name = w.pick("endpoint")
    reply = name and w.http.get(f"/v1/webhook_endpoints/{name}/deliveries")
    for delivery in reply.json()["data"] if reply and reply.is_success else ():
        w.objects.add("delivery", delivery["id"])
    return reply or None


def retry_delivery(w: Walker) -> httpx2.Response | None:
    name = w.pick("delivery")
    return name and w.http.post(f"/v1/deliveries/{name}/retry")


def switch_instance(w: Walker) -> httpx2.Response:
    return w.admin.post(f"/v1/admin/instances/echo/{w.random.choice(['enable', 'enable', 'disable'])}")


def open_model(w: Walker) -> httpx2.Response:
    return w.admin.post("/v1/admin/models", json={"name": MODEL, "is_open": w.random.random() < 0.9})


def set_price(w: Walker) -> httpx2.Response:
    return w.admin.post("/v1/admin/prices", json={"model": MODEL, "input": "1", "output": "2"})


def add_key(w: Walker) -> httpx2.Response:
    return w.learn("key", w.admin.post("/v1/admin/tenants/beta/keys", json={"name": "spare"}))


def revoke_key(w: Walker) -> httpx2.Response | None:
    name = w.pick("key")
    return name and w.admin.post(f"/v1/admin/keys/{name}/revoke")


OFTEN: Final = (
    upload_file, delete_file, read_file, create_batch, create_in_line, see_batch, cancel_batch, retry_batch, read_results, see_request,
    validate, start_upload, add_part, add_part, complete_upload, complete_upload, cancel_upload,
)  # fmt: skip
ACTS: Final[Sequence[Callable[[Walker], Any]]] = OFTEN + OFTEN + (
    change_batch, see_lists, add_endpoint, change_endpoint, rotate_secret, remove_endpoint, see_deliveries, retry_delivery, switch_instance,
    open_model, set_price, add_key, revoke_key,
)  # fmt: skip


@dataclass
class Walk:
    """Several walkers, time, and a purge without rest."""

    api: Api
    settings: Settings
    seed: int
    seen: Seen = field(default_factory=Seen)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self, seconds: float, walkers: int = 6) -> None:
        """Walk for so long; what was seen is in `seen`."""
        objects = Objects()
        bodies = [
            partial(self._walk, Walker(self.api, objects, self.seen, Random(f"{self.seed}-{n}")))
            for n in range(walkers)
        ]
        with running([*bodies, self._age, self._purge], self.seen):
            time.sleep(seconds)
            self.over.set()

    def _walk(self, walker: Walker) -> None:
        while not self.over.is_set():
            walker.step()

    def _age(self) -> None:
        random = Random(self.seed)
        with psycopg.connect(self.api.dsn, autocommit=True) as owner:
            while not self.over.wait(TICK_SECONDS):
                try:
                    owner.execute(random.choice(TIME_PASSES).encode())
                except psycopg.errors.DeadlockDetected:
                    continue  # Our own way of letting time pass locks in no order.

    def _purge(self) -> None:
        with connect(self.api.dsn) as connection:
            while not self.over.wait(TICK_SECONDS):
                purge.step(connection, self.settings)


@contextmanager
def running(bodies: Sequence[Callable[[], None]], seen: Seen) -> Iterator[None]:
    """Each in a thread of its own until the end of the block; one that raises is a fault."""

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            seen.faults.append(f"{body}: {error!r}")

    with ExitStack() as stack:
        for body in bodies:
            thread = threading.Thread(target=guarded, args=(body,))
            thread.start()
            stack.callback(thread.join)
        yield


def rows(connection: Connection[TupleRow], query: str) -> list[Any]:
    return connection.execute(query.encode()).fetchall()
