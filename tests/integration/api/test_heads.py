"""Who sends no request, a byte of its head now and then, or no HTTP, is cut off; who waits for an answer is not."""

from __future__ import annotations

import json
import select
import socket

import pytest

from api.heads import HeadsInTime
from slackwater.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.test_upload_limits import dial

HEAD_SECONDS = 0.6
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeadsInTime, "head_seconds", HEAD_SECONDS)


@pytest.fixture
def api_settings(api_settings: Settings) -> Settings:
    """A body has time: only heads are timed here."""
    return api_settings.model_copy(update={"upload_idle_seconds": 60.0})


def drip(line: socket.socket, most: int) -> int:
    """Send a byte every 0.1 s until the other side hangs up; returns how many went out, `most` if it never does."""
    for n in range(most):
        readable, _, _ = select.select([line], [], [], 0.1)
        try:
            if readable:
                assert line.recv(65536) == b""
                return n
            line.sendall(b"a")
        except ConnectionError:
            return n
    return most


def test_a_head_that_drips_is_cut_off(api: Api) -> None:
    with dial(api) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        assert drip(line, 100) < 100


def test_a_silent_connection_is_cut_off(api: Api) -> None:
    with dial(api) as line:
        assert line.recv(65536) == b""


def test_a_second_head_that_drips_is_cut_off(api: Api) -> None:
    with dial(api) as line:
        line.sendall(WHOLE)
        reply = b""
        while not reply.endswith(b'{"status":"ok"}'):
            piece = line.recv(65536)
            assert piece, reply
            reply += piece
        line.sendall(b"GET /heal")
        assert drip(line, 100) < 100


def test_a_whole_head_may_take_its_time_over_its_body(api: Api) -> None:
    head = f"POST /v1/batches HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {api.key}\r\nContent-Length: 20\r\n\r\n"
    with dial(api) as line:
        line.sendall(head.encode())
        assert drip(line, 20) == 20
        assert line.recv(65536).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "head",
    [
        b"GARBAGE",
        b"GET / HTTP/1.1\r\nHost: test\r\nno header",
        b"POST /v1/batches HTTP/1.1\r\nHost: test\r\nContent-Length: abc",
    ],
    ids=["no request", "no header", "no length"],
)
def test_what_is_no_http_is_refused_in_the_envelope(api: Api, head: bytes) -> None:
    with dial(api) as line:
        line.sendall(head + b"\r\n\r\n")
        reply = b""
        while piece := line.recv(65536):
            reply += piece
    start, _, body = reply.partition(b"\r\n\r\n")

    assert start.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nx-request-id: req_" in start.lower()
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
