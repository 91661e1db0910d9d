"""An embedded Valkey: memory only, for the tests and for trying the distributed mode on one host."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from slackwater.embedded.binaries import valkey_server
from slackwater.embedded.errors import EmbeddedServerError

_TRIES = 10
_READY_WITHIN_SECONDS = 30.0
_STOP_WITHIN_SECONDS = 10.0


@dataclass
class Valkey:
    """A Valkey that forgets everything when it ends; also a context manager.

    It listens on a socket in a directory of its own, which it removes at `stop()`, or with `tcp` on a free
    port of 127.0.0.1 behind a password.
    """

    tcp: bool = False
    _server: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _directory: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False, repr=False)
    _url: str = field(default="", init=False, repr=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """`unix:///…` or `redis://:password@127.0.0.1:port/0`, as redis-py takes it."""
        return self._url

    @property
    def pid(self) -> int | None:
        """Of the server, while it runs."""
        return self._server.pid if self._server is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Whether the server process lives."""
        return self._server is not None and self._server.poll() is None

    def start(self) -> str:
        """Serve, and return `url`. One that runs is left alone; after a killed one comes an empty one."""
        if self.is_running():
            return self.url
        try:
            self._start()
        except BaseException:
            self._kill()
            raise
        return self.url

    def stop(self) -> None:
        """End the server and remove its directory; what it held is gone."""
        if self._server is not None and self.is_running():
            self._server.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(_STOP_WITHIN_SECONDS)
        self._kill()

    def _start(self) -> None:
        program = valkey_server()
        for _ in range(_TRIES):
            self._kill()
            self._directory = tempfile.TemporaryDirectory(prefix="slackwater-valkey-")
            if self._serve(program, Path(self._directory.name)):
                return
        raise EmbeddedServerError(f"Valkey found no free port of 127.0.0.1 in {_TRIES} tries")

    def _serve(self, program: Path, directory: Path) -> bool:
        """Whether it answers; False where its port was taken in between. The settings go in by the pipe."""
        listen, self._url = _tcp_address() if self.tcp else _socket_address(directory)
        log = directory / "valkey.log"
        with log.open("wb") as output:
            self._server = _spawn(program, output.fileno())
        _write_settings(self._server, [*listen, *_settings(directory)])
        deadline = time.monotonic() + _READY_WITHIN_SECONDS
        while self.is_running() and time.monotonic() < deadline:
            if _answers(self._url):
                return True
            time.sleep(0.005)
        return self._failed(log)

    def _failed(self, log: Path) -> bool:
        printed = log.read_text(errors="replace")
        if "Address already in use" in printed:
            return False
        reason = "\n".join(printed.splitlines()[-5:])
        raise EmbeddedServerError(f"Valkey did not start:\n{reason}")

    def _kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


def _settings(directory: Path) -> list[str]:
    return [f'dir "{directory}"', 'save ""', "appendonly no", "daemonize no", "maxmemory-policy noeviction"]


def _socket_address(directory: Path) -> tuple[list[str], str]:
    """Settings and URL. A temporary directory keeps the path under the 107 bytes a socket may have."""
    path = directory / "valkey.sock"
    return ["port 0", f'unixsocket "{path}"', "unixsocketperm 700"], f"unix://{path}"


def _tcp_address() -> tuple[list[str], str]:
    """Settings and URL. Whoever else is on this host lacks the password, which is on no command line."""
    password = secrets.token_urlsafe(32)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return [
        f"port {port}",
        "bind 127.0.0.1",
        f"requirepass {password}",
    ], f"redis://:{password}@127.0.0.1:{port}/0"


def _spawn(program: Path, output: int) -> subprocess.Popen[bytes]:
    """In its own session, so that a terminal's Ctrl-C never reaches it."""
    try:
        return subprocess.Popen(
            [program, "-"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
        )
    except OSError as error:
        raise EmbeddedServerError(f"{program} cannot be executed: {error.strerror}") from error


def _write_settings(server: subprocess.Popen[bytes], lines: list[str]) -> None:
    if server.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError), server.stdin:
        server.stdin.write("".join(f"{line}\n" for line in lines).encode())


def _answers(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1)
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()
