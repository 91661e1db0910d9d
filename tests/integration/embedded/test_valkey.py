"""The embedded Valkey: it serves, it dies, it leaves nothing."""

import os
import signal
from pathlib import Path
from urllib.parse import urlparse

import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from scheduler.celery_app import broker_of
from slackwater.embedded import Valkey
from slackwater.settings import Settings


@pytest.fixture(params=[False, True], ids=["socket", "tcp"])
def tcp(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def write(url: str, key: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(key, "value")


def read(url: str, key: str) -> object:
    with redis.Redis.from_url(url) as client:
        return client.get(key)


def test_it_serves_until_it_is_stopped(tcp: bool) -> None:
    with Valkey(tcp=tcp) as server:
        write(server.url, "kept")
        assert read(server.url, "kept") == b"value"
        url = server.url

    assert not server.is_running()
    with pytest.raises(redis.ConnectionError):
        read(url, "kept")


def test_a_killed_one_is_followed_by_an_empty_one(tcp: bool) -> None:
    with Valkey(tcp=tcp) as server:
        write(server.url, "lost")
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        server.start()

        assert server.pid != pid
        assert read(server.url, "lost") is None


def test_several_serve_at_once(tcp: bool) -> None:
    with Valkey(tcp=tcp) as one, Valkey(tcp=tcp) as other:
        write(one.url, "mine")

        assert read(other.url, "mine") is None


def test_its_directory_goes_with_it() -> None:
    with Valkey() as server:
        directory = Path(urlparse(server.url).path).parent
        assert directory.stat().st_mode & 0o7777 == 0o700

    assert not directory.exists()


def test_a_port_wants_its_password_and_no_command_line_tells_it() -> None:
    with Valkey(tcp=True) as server:
        address = urlparse(server.url)
        assert address.password is not None
        command = Path(f"/proc/{server.pid}/cmdline").read_text()

        assert address.password not in command
        with pytest.raises(redis.AuthenticationError):
            read(f"redis://127.0.0.1:{address.port}/0", "any")


def test_it_is_out_of_reach_of_the_terminals_signals() -> None:
    with Valkey() as server:
        assert server.pid is not None
        assert os.getsid(server.pid) == server.pid


def test_celery_reaches_it_as_a_broker(tcp: bool) -> None:
    with (
        Valkey(tcp=tcp) as server,
        Celery(broker=broker_of(Settings(redis_url=SecretStr(server.url)))) as app,
        app.connection_for_write() as broker,
    ):
        broker.ensure_connection(max_retries=1)

        assert broker.connected
