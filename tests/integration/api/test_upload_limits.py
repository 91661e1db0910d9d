"""Uploads that are too large, too slow, cut off, or many at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import openai
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.test_files import FILE, FORM, PURPOSE, form
from tests.waiting import until

HEAD = form(PURPOSE)[: -len(b"--X--\r\n")] + b'--X\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
MIB = 1 << 20


@pytest.fixture
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"max_file_bytes": 4 * MIB, "upload_idle_seconds": 1.0})


def stored(worker: Connection[TupleRow]) -> tuple[int, int]:
    row = worker.execute("SELECT (SELECT count(*) FROM file), (SELECT count(*) FROM file_chunk)").fetchone()
    assert row is not None
    return row[0], row[1]


def test_a_declared_size_over_the_limit_is_refused(api: Api, worker: Connection[TupleRow]) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        api.client().files.create(file=b"x" * (5 * MIB), purpose="batch")

    assert (caught.value.status_code, caught.value.type) == (413, "invalid_request_error")
    assert stored(worker) == (0, 0)


def test_a_chunked_body_over_the_limit_is_refused_on_its_way(api: Api, worker: Connection[TupleRow]) -> None:
    def endless() -> Iterator[bytes]:
        yield HEAD
        for _ in range(64):
            yield b"x" * MIB

    reply = api.http().post("/v1/files", content=endless(), headers=FORM)

    assert reply.status_code == 413
    assert stored(worker) == (0, 0)


def test_a_file_of_exactly_the_limit_passes(api: Api) -> None:
    assert api.client().files.create(file=b"x" * (4 * MIB), purpose="batch").bytes == 4 * MIB


def dial(api: Api) -> socket.socket:
    address = urlsplit(api.url)
    return socket.create_connection((address.hostname, address.port), timeout=60)


def request_head(api: Api, length: int) -> bytes:
    lines = [
        "POST /v1/files HTTP/1.1",
        "Host: test",
        f"Authorization: Bearer {api.key}",
        f"Content-Type: {FORM['content-type']}",
        f"Content-Length: {length}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_a_client_that_falls_silent_gets_408(api: Api, worker: Connection[TupleRow]) -> None:
    with dial(api) as line:
        line.sendall(request_head(api, 3 * MIB) + HEAD + b"x" * (2 * MIB))
        reply = line.recv(65536)

    assert reply.startswith(b"HTTP/1.1 408")
    assert b"retry-after" in reply.lower()
    assert stored(worker) == (0, 0)


def test_a_client_that_drips_gets_408(api: Api, worker: Connection[TupleRow]) -> None:
    stop = threading.Event()

    def drip(line: socket.socket) -> None:
        try:
            while not stop.wait(0.05):
                line.sendall(b"x")
        except OSError:
            return

    with dial(api) as line:
        line.sendall(request_head(api, 3 * MIB) + HEAD)
        dripping = threading.Thread(target=drip, args=(line,))
        dripping.start()
        reply = line.recv(65536)
        stop.set()
        dripping.join()

    assert reply.startswith(b"HTTP/1.1 408")
    assert stored(worker) == (0, 0)


def test_an_upload_that_is_cut_off_leaves_nothing(api: Api, worker: Connection[TupleRow]) -> None:
    with dial(api) as line:
        line.sendall(request_head(api, 4 * MIB) + HEAD + b"x" * (2 * MIB))
        until(lambda: stored(worker) == (1, 2))
        assert api.client().files.list().data == []

    until(lambda: stored(worker) == (0, 0))


def test_many_uploads_at_once(api: Api) -> None:
    client = api.client()
    bodies = [bytes([65 + n]) * (MIB + n) for n in range(12)]

    with ThreadPoolExecutor(12) as pool:
        made = list(pool.map(lambda body: client.files.create(file=body, purpose="batch"), bodies))

    for file, body in zip(made, bodies, strict=True):
        assert client.files.content(file.id).read() == body


def test_a_purged_upload_cannot_be_completed(api: Api, worker: Connection[TupleRow]) -> None:
    """The purge took it for dead; the client hears that it was too slow."""
    body = HEAD + b"x" * (3 * MIB) + b"\r\n--X--\r\n"
    with dial(api) as line:
        line.sendall(request_head(api, len(body)) + body[: 2 * MIB + 4096])
        until(lambda: stored(worker) == (1, 2))
        worker.execute("DELETE FROM file")
        line.sendall(body[2 * MIB + 4096 :])
        assert line.recv(65536).startswith(b"HTTP/1.1 408")


def test_the_form_of_the_tests_is_a_form(api: Api) -> None:
    assert api.http().post("/v1/files", content=form(PURPOSE, FILE), headers=FORM).status_code == 200
