"""SECURITY's attacks 10 to 12 on a process of its own: refused, nothing of them kept, memory flat, everybody else served."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx2
import pytest
from openai import OpenAI

from slackwater.cli.administer import as_admin
from slackwater.settings import Settings
from slackwater.tenancy import keys, tenants
from tests.integration.api.conftest import Api
from tests.integration.api.process import ApiProcess, api_process
from tests.integration.api.rows import Worker
from tests.integration.api.test_files import FILE, FORM, PURPOSE, form
from tests.integration.api.test_upload_limits import HEAD, MIB, dial, request_head, stored
from tests.waiting import until

LIMIT = 60 * MIB
LONGEST_WAIT_SECONDS = 2.0


@dataclass
class Target:
    """A process under attack, and how long others had to wait for it."""

    api: ApiProcess
    key: str
    http: httpx2.Client
    waits: list[float] = field(default_factory=list)

    def post(self, path: str, content: bytes | Iterator[bytes], **headers: str) -> httpx2.Response:
        return self.http.post(
            path, content=content, headers=FORM | {k.replace("_", "-"): v for k, v in headers.items()}
        )

    def raw(self, head: list[str], body: bytes = b"", *, hang_up: bool = False) -> bytes:
        """What is answered to a request that no client library would send."""
        url = urlsplit(self.api.url)
        lines = ["POST /v1/files HTTP/1.1", "Host: test", f"Authorization: Bearer {self.key}", *head]
        with socket.create_connection((url.hostname, url.port), timeout=60) as line:
            line.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            return b"" if hang_up else line.recv(65536)


@contextmanager
def watched(target: Target) -> Iterator[None]:
    """Somebody else asks all the while."""
    stop = threading.Event()

    def ask() -> None:
        with httpx2.Client(base_url=target.api.url, timeout=60) as http:
            while not stop.wait(0.02):
                began = time.monotonic()
                assert http.get("/healthz").status_code == 200
                target.waits.append(time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def part(head: str) -> bytes:
    return f"--X\r\n{head}\r\n\r\nx\r\n--X--\r\n".encode()


def declared(size: int) -> Iterator[bytes]:
    yield HEAD
    yield b"x" * (MIB - len(HEAD))
    yield from itertools.repeat(b"x" * MIB, size // MIB - 1)


def endless() -> Iterator[bytes]:
    yield HEAD
    yield from itertools.repeat(b"x" * MIB)


def endless_preamble() -> Iterator[bytes]:
    return itertools.repeat(b"\r\n" * (MIB // 2))


def endless_header() -> Iterator[bytes]:
    yield b'--X\r\nContent-Disposition: form-data; name="'
    yield from itertools.repeat(b"n" * MIB)


def near_boundaries() -> bytes:
    return HEAD + b"\r\n--\r\n-" * MIB + b"\r\n--X--\r\n"


def bomb() -> bytes:
    return gzip.compress(bytes(64 * MIB))


DISPOSITION = 'Content-Disposition: form-data; name="file"; filename="a"'
MANY = b'--X\r\nContent-Disposition: form-data; name="p"\r\n\r\nx\r\n' * 10_000 + b"--X--\r\n"
ATTACKS: dict[str, tuple[Callable[[Target], httpx2.Response], int]] = {
    "300 MB, as declared": (lambda t: t.post("/v1/files", declared(300 * MIB), content_length=str(300 * MIB)), 413),
    "a chunked body without end": (lambda t: t.post("/v1/files", endless()), 413),
    "a preamble without end": (lambda t: t.post("/v1/files", endless_preamble()), 400),
    "a part header without end": (lambda t: t.post("/v1/files", endless_header()), 400),
    "a gzip bomb as a file": (lambda t: t.post("/v1/files", bomb(), content_encoding="gzip"), 415),
    "a gzip bomb as JSON": (
        lambda t: t.post("/v1/uploads", bomb(), content_encoding="gzip", content_type="application/json"), 415,
    ),
    "nested gzip": (lambda t: t.post("/v1/files", gzip.compress(bomb()), content_encoding="gzip, gzip"), 415),
    "10,000 parts": (lambda t: t.post("/v1/files", MANY), 400),
    "a huge part header": (lambda t: t.post("/v1/files", part("a: " + "b" * 8 * MIB + "\r\n" + DISPOSITION)), 400),
    "100,000 part headers": (lambda t: t.post("/v1/files", part("a: b\r\n" * 100_000 + DISPOSITION)), 400),
    "no boundary": (lambda t: t.post("/v1/files", form(FILE), content_type="multipart/form-data"), 400),
    "another boundary": (lambda t: t.post("/v1/files", form(FILE).replace(b"--X", b"--Y")), 400),
    "two files": (lambda t: t.post("/v1/files", form(PURPOSE, FILE, FILE)), 400),
    "near boundaries": (lambda t: t.post("/v1/files", near_boundaries()), 200),
}  # fmt: skip


@pytest.fixture
def target(dsn: str) -> Iterator[Target]:
    as_admin(dsn, lambda connection: tenants.create(connection, "alpha"))
    key: str = as_admin(dsn, lambda connection: keys.create(connection, "alpha")).text
    settings = {"SLACKWATER_MAX_FILE_BYTES": str(48 * MIB), "SLACKWATER_UPLOAD_IDLE_SECONDS": "1"}
    headers = {"authorization": f"Bearer {key}"}
    with api_process(dsn, **settings) as api, httpx2.Client(base_url=api.url, headers=headers, timeout=120) as http:
        assert http.post("/v1/files", content=form(PURPOSE, FILE), headers=FORM).status_code == 200
        for file in http.get("/v1/files").json()["data"]:
            http.delete(f"/v1/files/{file['id']}")
        yield Target(api, key, http)


def test_every_attack_is_refused_and_costs_little(target: Target, worker: Worker, subtests: pytest.Subtests) -> None:
    worker.execute("DELETE FROM file_chunk")
    worker.execute("DELETE FROM file")
    idle = target.api.memory("VmRSS")
    with watched(target):
        for name, (attack, status) in ATTACKS.items():
            with subtests.test(name):
                reply = attack(target)

                assert reply.status_code == status, reply.text
                if status != 200:
                    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
                    assert stored(worker) == (0, 0)
    assert target.api.memory() - idle <= LIMIT
    assert max(target.waits) <= LONGEST_WAIT_SECONDS


def test_one_byte_a_second_is_cut_off_while_others_are_served(target: Target, worker: Worker) -> None:
    head = [f"Content-Type: {FORM['content-type']}", f"Content-Length: {3 * MIB}"]
    url = urlsplit(target.api.url)
    stop = threading.Event()

    def drip(line: socket.socket) -> None:
        try:
            while not stop.wait(0.2):
                line.sendall(b"x")
        except OSError:
            return

    with watched(target), socket.create_connection((url.hostname, url.port), timeout=60) as line:
        lines = ["POST /v1/files HTTP/1.1", "Host: test", f"Authorization: Bearer {target.key}", *head]
        line.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + HEAD)
        dripping = threading.Thread(target=drip, args=(line,))
        dripping.start()
        reply = line.recv(65536)
        stop.set()
        dripping.join()
        until(lambda: len(target.waits) > 3)

    assert reply.startswith(b"HTTP/1.1 408")
    until(lambda: target_is_clean(worker))
    assert max(target.waits) <= LONGEST_WAIT_SECONDS


def target_is_clean(worker: Worker) -> bool:
    row = worker.execute("SELECT count(*) FROM file WHERE NOT is_complete").fetchone()
    return row == (0,)


def test_a_wrong_content_length_leaves_nothing(target: Target, worker: Worker) -> None:
    kind, whole = f"Content-Type: {FORM['content-type']}", form(PURPOSE, FILE)

    too_short = target.raw([kind, f"Content-Length: {len(whole) - 9}"], whole)
    too_long = target.raw([kind, f"Content-Length: {len(whole) + 9}"], whole)
    target.raw([kind, f"Content-Length: {len(whole) + 9}"], whole, hang_up=True)
    none_at_all = target.raw([kind, "Content-Length: nine"], whole)
    both = target.raw([kind, "Content-Length: 5", "Content-Length: 6"], whole)
    coded = target.raw([kind, "Transfer-Encoding: gzip, chunked"], whole)

    assert too_short.startswith(b"HTTP/1.1 400")
    assert too_long.startswith(b"HTTP/1.1 408")
    for refused in (none_at_all, both, coded):
        assert refused.split(b" ")[1] in (b"400", b"501"), refused[:80]
    until(lambda: target_is_clean(worker))
    assert worker.execute("SELECT count(*) FROM file WHERE is_complete AND deleted_at IS NULL").fetchone() == (0,)


@pytest.fixture
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"max_uploads_per_key": 3, "upload_idle_seconds": 20.0})


def test_one_key_has_so_many_uploads_at_once(api: Api, worker: Worker) -> None:
    client = api.client(max_retries=0)
    upload = client.uploads.create(filename="a", purpose="batch", bytes=4, mime_type="a/b")
    held = [dial(api) for _ in range(3)]
    for line in held:
        line.sendall(request_head(api, 3 * MIB) + HEAD + b"x" * (MIB + 4096))
    until(lambda: stored(worker) == (3, 3))

    for path in ("/v1/files", f"/v1/uploads/{upload.id}/parts"):
        refused = api.http().post(path, content=form(PURPOSE, FILE), headers=FORM)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_uploads")
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert "x-should-retry" not in refused.headers
    with OpenAI(base_url=f"{api.url}/v1", api_key=api.other_key, max_retries=0) as other:
        assert other.files.create(file=b"{}\n", purpose="batch").bytes == 3
    for line in held:
        line.close()
    until(lambda: stored(worker) == (1, 1))

    assert client.files.create(file=b"{}\n", purpose="batch").bytes == 3


def test_a_client_library_waits_for_its_turn(api: Api) -> None:
    """429 with `Retry-After`: it sends again by itself."""
    line = [dial(api) for _ in range(3)]
    for one in line:
        one.sendall(request_head(api, 3 * MIB) + HEAD)
    timer = threading.Timer(1.0, lambda: hang_up(line))
    timer.start()

    made = api.client(max_retries=8).files.create(file=json.dumps({}).encode(), purpose="batch")

    timer.join()
    assert made.bytes == 2


def hang_up(lines: list[socket.socket]) -> None:
    for line in lines:
        line.close()


def test_two_lengths_are_refused_and_the_connection_ends(api: Api) -> None:
    """What a proxy before us may have read as another request must not be answered as one."""
    import socket

    host, port = api.url.removeprefix("http://").split(":")
    head = f"POST /v1/batches/x/cancel HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {api.key}\r\n"
    smuggled = "0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"{head}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n{smuggled}".encode())
        answers = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answers.startswith(b"HTTP/1.1 400")
    assert answers.count(b"HTTP/1.1") == 1
