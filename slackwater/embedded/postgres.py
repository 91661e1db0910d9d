"""Our supervisor of one embedded PostgreSQL."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from slackwater.embedded.access import Access
from slackwater.embedded.accounts import Account, account_for
from slackwater.embedded.binaries import Binaries, postgres_binaries
from slackwater.embedded.cluster import cluster_exists, make_cluster
from slackwater.embedded.errors import EmbeddedServerError
from slackwater.embedded.home import Home
from slackwater.embedded.interrupts import deferred
from slackwater.embedded.leftovers import ESCALATION, settle
from slackwater.embedded.server_log import ServerLog, failure_reason, port_was_taken, recovery_progress
from slackwater.embedded.server_settings import cluster_name, server_settings

_PORT_TRIES = 10
# Another server's answer lasts only until ours has failed to bind its port, far sooner than this.
_OTHER_SERVER_SECONDS = 5.0
_WRONG_PASSWORD = "password authentication failed"  # noqa: S105
_READY_POLL_SECONDS = 0.01
_PROGRESS_EVERY_SECONDS = 2.0


class _PortTakenError(Exception):
    """Another process took the port between our look and the server's bind."""


def _silent(_: str) -> None:
    """No one asked for progress."""


@dataclass
class Postgres:
    """A PostgreSQL 18 of our own in `home`, alive until `stop()`; also a context manager.

    `port` None takes a free one of 127.0.0.1. `settings` outrank ours. `progress` hears, in plain words, of
    anything that makes a start or a stop last. All methods raise EmbeddedServerError; one thread at a time.
    """

    home: Path
    port: int | None = None
    progress: Callable[[str], None] = _silent
    settings: Mapping[str, str] = field(default_factory=dict)
    _server: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _lock: int | None = field(default=None, init=False, repr=False)
    _access: Access | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.home = self.home.expanduser().resolve()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """libpq URL of the role `slackwater`: it owns the database, may create roles, and is no superuser."""
        return self._known().dsn

    @property
    def admin_dsn(self) -> str:
        """libpq URL of the superuser, for the supervisor and for tests."""
        return self._known().admin_dsn

    @property
    def data(self) -> Path:
        """The PostgreSQL data directory."""
        return Home(self.home).data

    @property
    def pid(self) -> int | None:
        """Of the postmaster, while it runs."""
        return self._server.pid if self._server is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Whether the server process lives; it may be busy, this asks it nothing."""
        return self._server is not None and self._server.poll() is None

    def start(self) -> str:
        """Serve, and return `dsn`. Waits for recovery as long as it takes; a running server is left alone."""
        if self.is_running():
            return self.dsn
        try:
            self._start()
        except BaseException as error:
            self._abandon()
            if isinstance(error, OSError | psycopg.Error):
                raise EmbeddedServerError(f"PostgreSQL could not be started in {self.home}: {error}") from error
            raise
        return self.dsn

    def stop(self, fast: bool = True) -> None:
        """End the server: `fast` disconnects its clients, else it waits until they have all left.

        A fast stop that has not ended in 60 seconds becomes an immediate one: the next start recovers.
        """
        if self.is_running() and not fast:
            self._signal(signal.SIGTERM, None)
        for number, patience in ESCALATION:
            if self.is_running():
                self._signal(number, patience)
        self._release()

    def _start(self) -> None:
        if not Path("/proc/self").exists():
            raise EmbeddedServerError("the embedded PostgreSQL needs Linux with /proc; give the DSN of a server")
        home = Home(self.home)
        account = account_for(home.data)
        home.prepare(account)
        self._lock = home.claim() if self._lock is None else self._lock
        server_lock = settle(home.data, cluster_name(home.data), home.server_lock, self.progress)
        try:
            binaries = postgres_binaries().for_account(account, home.path)
            passwords = home.passwords()
            if not cluster_exists(home, binaries.major):
                self.progress("making a new database")
                make_cluster(home, binaries, account, passwords.admin)
            self._access = self._serve(home, binaries, account, server_lock)
        finally:
            os.close(server_lock)
        self._access.grant()

    def _serve(self, home: Home, binaries: Binaries, account: Account, server_lock: int) -> Access:
        """Start on a port that no one else took in between. The server's processes inherit its lock."""
        for _ in range(_PORT_TRIES if self.port is None else 1):
            access = Access(self.port or _free_port(), home.passwords())
            settings = server_settings(home.data, home.log, access.port, self.settings)
            log = ServerLog(home)
            with deferred():
                self._server = _spawn(home, binaries, account, settings, server_lock)
            try:
                self._wait_until_ready(access, log)
            except _PortTakenError:
                continue
            return access
        raise EmbeddedServerError(
            f"port {access.port} of 127.0.0.1 is taken by another process; stop that one or choose another port"
        )

    def _wait_until_ready(self, access: Access, log: ServerLog) -> None:
        """Until a real query is answered by this very server. No limit: recovery takes what it takes."""
        began = told = time.monotonic()
        while (unready := access.unready(self.data)) is not None:
            if not self.is_running():
                raise self._failed(log)
            now = time.monotonic()
            if _WRONG_PASSWORD in unready and now - began > _OTHER_SERVER_SECONDS:
                raise EmbeddedServerError(f"passwords.json in {self.home} is not that of the database: {unready}")
            if now - told >= _PROGRESS_EVERY_SECONDS:
                told = now
                self.progress(_waiting(now - began, log))
            time.sleep(_READY_POLL_SECONDS)

    def _failed(self, log: ServerLog) -> Exception:
        lines = log.lines()
        if port_was_taken(lines):
            return _PortTakenError()
        status = self._server.returncode if self._server else None
        return EmbeddedServerError(
            f"PostgreSQL ended at its start (exit status {status}):\n{failure_reason(lines)}\nIts log is in {self.home}"
        )

    def _signal(self, number: signal.Signals, patience: float | None) -> None:
        """Signal our own child and wait; being unreaped, its pid cannot be another's."""
        if self._server is None:
            return
        self._server.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(patience)
            return
        self.progress(f"PostgreSQL has not stopped in {patience:.0f} s: insisting")

    def _abandon(self) -> None:
        """After a failed or interrupted start: nothing of it keeps running."""
        if self.is_running():
            self._signal(signal.SIGQUIT, 3.0)
        if self.is_running():
            self._signal(signal.SIGKILL, None)
        self._release()

    def _release(self) -> None:
        self._server = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _known(self) -> Access:
        if self._access is None:
            raise EmbeddedServerError(f"the PostgreSQL in {self.home} has not been started")
        return self._access


def _spawn(
    home: Home, binaries: Binaries, account: Account, settings: Mapping[str, str], server_lock: int
) -> subprocess.Popen[bytes]:
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command: list[str | Path] = [binaries.postgres, "-D", home.data, *flags]
    output = os.open(home.startup_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        return account.spawn(command, stdout=output, stderr=output, pass_fds=[server_lock])
    finally:
        os.close(output)


def _waiting(seconds: float, log: ServerLog) -> str:
    detail = recovery_progress(log.lines()) or "no word from it yet"
    return f"waiting for PostgreSQL, {seconds:.0f} s so far: {detail}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
