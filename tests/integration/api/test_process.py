"""The API as a process: the port it tells, the memory it takes, and how it ends."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Iterator

import httpx2
import pytest
from openai import OpenAI

from slackwater.cli.administer import as_admin
from slackwater.tenancy import keys, tenants
from tests.integration.api.process import api_process
from tests.integration.api.rows import Worker
from tests.integration.api.test_files import FORM
from tests.integration.api.test_upload_limits import HEAD, MIB

STOP_SECONDS = 3.0
LIMIT = 60 * MIB
LINE = b"x" * 1023 + b"\n"


@pytest.fixture
def key(dsn: str) -> str:
    as_admin(dsn, lambda connection: tenants.create(connection, "alpha"))
    text: str = as_admin(dsn, lambda connection: keys.create(connection, "alpha")).text
    return text


def body(size: int, line: bytes) -> Iterator[bytes]:
    yield HEAD
    for _ in range(size // MIB):
        yield line * (MIB // len(line))
    yield b"\r\n--X--\r\n"


@pytest.mark.parametrize("line", [LINE, b"x" * MIB], ids=["lines of 1 KiB", "no line end"])
def test_200_mib_go_up_and_down_in_60_mib(dsn: str, key: str, line: bytes) -> None:
    headers = {"authorization": f"Bearer {key}"}
    with api_process(dsn) as api, httpx2.Client(base_url=api.url, headers=headers, timeout=120) as http:
        small = http.post("/v1/files", content=body(MIB, line), headers=FORM).json()["id"]
        http.get(f"/v1/files/{small}/content")
        idle = api.memory("VmRSS")

        file = http.post("/v1/files", content=body(200 * MIB, line), headers=FORM).json()
        upload_peak = api.memory()
        digest = hashlib.sha256()
        with http.stream("GET", f"/v1/files/{file['id']}/content") as reply:
            for piece in reply.iter_bytes():
                digest.update(piece)
        peak = api.memory()

    assert file["bytes"] == 200 * MIB
    assert digest.digest() == hashlib.sha256(line * (200 * MIB // len(line))).digest()
    assert upload_peak - idle <= LIMIT
    assert peak - idle <= LIMIT


def test_sigterm_ends_it_within_three_seconds_with_streams_open(dsn: str, key: str, worker: Worker) -> None:
    headers = {"authorization": f"Bearer {key}"}
    with api_process(dsn) as api, httpx2.Client(base_url=api.url, headers=headers, timeout=60) as http:
        file = http.post("/v1/files", content=body(64 * MIB, LINE), headers=FORM).json()
        assert worker.execute("SELECT count(*) FROM gateway").fetchone() == (1,)
        with http.stream("GET", f"/v1/files/{file['id']}/content") as reply:
            next(reply.iter_bytes(1024))
            began = time.monotonic()
            api.process.send_signal(signal.SIGTERM)
            api.process.wait(60)
            ended = time.monotonic()

    assert ended - began <= STOP_SECONDS
    assert worker.execute("SELECT count(*) FROM gateway").fetchone() == (0,)
    assert worker.execute("SELECT count(*) FROM live_load").fetchone() == (0,)


def test_the_client_finds_the_port_it_was_told(dsn: str, key: str) -> None:
    with api_process(dsn) as api, OpenAI(base_url=f"{api.url}/v1", api_key=key) as client:
        assert client.batches.list().data == []
