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
from psycopg import sql

from slackwater.embedded.accounts import Account, account_for
from slackwater.embedded.binaries import Binaries, postgres_binaries
from slackwater.embedded.cluster import ADMIN, cluster_exists, make_cluster
from slackwater.embedded.errors import EmbeddedServerError
from slackwater.embedded.home import Home, Passwords
from slackwater.embedded.leftovers import ESCALATION, settle
from slackwater.embedded.server_log import ServerLog, failure_reason, port_was_taken, recovery_progress
from slackwater.embedded.server_settings import cluster_name, server_settings

ROLE = DATABASE = "slackwater"

_PORT_TRIES = 10
_READY_POLL_SECONDS = 0.01
_PROGRESS_EVERY_SECONDS = 2.0

# Another server's answer lasts only until ours has failed to bind its port, far sooner than this.
_OTHER_SERVER_SECONDS = 5.0
_WRONG_PASSWORD = "password authentication failed"  # noqa: S105

_IDENTITY = "SELECT current_setting('data_directory')"

_PRESENT = """
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %(role)s),
       EXISTS (SELECT FROM pg_database WHERE datname = %(database)s)
"""


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
    _bound_port: int | None = field(default=None, init=False, repr=False)
    _passwords: Passwords | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.home = self.home.expanduser().resolve()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """libpq URL of the role `slackwater`: it owns the database, may create roles, and is no superuser."""
        return self._url(ROLE, self._known().application, DATABASE)

    @property
    def admin_dsn(self) -> str:
        """libpq URL of the superuser, for the supervisor and for tests."""
        return self._url(ADMIN, self._known().admin, "postgres")

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
                raise EmbeddedServerError(
                    f"PostgreSQL could not be started in {self.home}: {error}"
                ) from error
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
            raise EmbeddedServerError(
                "the embedded PostgreSQL needs Linux with /proc; give the DSN of a server"
            )
        home = Home(self.home)
        account = account_for(home.data)
        home.prepare(account)
        self._lock = home.claim() if self._lock is None else self._lock
        server_lock = settle(home.data, cluster_name(home.data), home.server_lock, self.progress)
        try:
            binaries = postgres_binaries().for_account(account, home.path)
            self._passwords = home.passwords()
            fresh = not cluster_exists(home, binaries.version.partition(".")[0])
            if fresh:
                self.progress("making a new database")
                make_cluster(home, binaries, account, self._passwords.admin)
            self._serve(home, binaries, account, server_lock)
        finally:
            os.close(server_lock)
        self._grant()

    def _serve(self, home: Home, binaries: Binaries, account: Account, server_lock: int) -> None:
        """Start on a port that no one else took in between. The server's processes inherit its lock."""
        for _ in range(_PORT_TRIES):
            self._bound_port = self.port or _free_port()
            log = ServerLog(home)
            self._server = self._spawn(home, binaries, account, server_lock)
            try:
                return self._wait_until_ready(log)
            except _PortTakenError:
                if self.port is not None:
                    break
        raise EmbeddedServerError(
            f"port {self._bound_port} of 127.0.0.1 is taken by another process; "
            f"stop that one or choose another port"
        )

    def _spawn(
        self, home: Home, binaries: Binaries, account: Account, server_lock: int
    ) -> subprocess.Popen[bytes]:
        settings = server_settings(home.data, home.log, self._bound_port or 0, self.settings)
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        output = os.open(home.startup_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            command: list[str | Path] = [binaries.postgres, "-D", home.data, *flags]
            return account.spawn(command, stdout=output, stderr=output, pass_fds=[server_lock])
        finally:
            os.close(output)

    def _wait_until_ready(self, log: ServerLog) -> None:
        """Until a real query is answered by this very server. No limit: recovery takes what it takes."""
        began = told = time.monotonic()
        while (unready := self._unready()) is not None:
            if not self.is_running():
                raise self._failed(log)
            if _WRONG_PASSWORD in unready and time.monotonic() - began > _OTHER_SERVER_SECONDS:
                raise EmbeddedServerError(
                    f"passwords.json in {self.home} is not that of the database: {unready}"
                )
            if time.monotonic() - told >= _PROGRESS_EVERY_SECONDS:
                told = time.monotonic()
                detail = recovery_progress(log.lines()) or "no word from it yet"
                self.progress(f"waiting for PostgreSQL, {told - began:.0f} s so far: {detail}")
            time.sleep(_READY_POLL_SECONDS)

    def _failed(self, log: ServerLog) -> Exception:
        lines = log.lines()
        if port_was_taken(lines):
            return _PortTakenError()
        status = self._server.returncode if self._server else None
        return EmbeddedServerError(
            f"PostgreSQL ended at its start (exit status {status}):\n{failure_reason(lines)}\n"
            f"Its log is in {self.home}"
        )

    def _unready(self) -> str | None:
        """Why no query is answered yet; None once one is, by our server and not by another on its port."""
        try:
            with self._admin() as connection:
                row = connection.execute(_IDENTITY).fetchone()
        except psycopg.OperationalError as error:
            return str(error)
        return None if row is not None and Path(row[0]) == self.data else "another server answers"

    def _grant(self) -> None:
        """Make the role and its database where missing: a crash may have come between initdb and this."""
        with self._admin() as connection:
            names = {"role": ROLE, "database": DATABASE}
            role_exists, database_exists = connection.execute(_PRESENT, names).fetchone() or (False, False)
            if not role_exists:
                connection.execute(_create_role(self._known().application))
            if not database_exists:
                owned = "CREATE DATABASE {} OWNER {} STRATEGY file_copy"
                connection.execute(sql.SQL(owned).format(sql.Identifier(DATABASE), sql.Identifier(ROLE)))

    def _admin(self) -> psycopg.Connection[tuple[str, ...]]:
        return psycopg.connect(self.admin_dsn, autocommit=True, connect_timeout=5)

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
            self._signal(signal.SIGQUIT, 10.0)
        if self.is_running():
            self._signal(signal.SIGKILL, None)
        self._release()

    def _release(self) -> None:
        self._server = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _known(self) -> Passwords:
        if self._passwords is None:
            raise EmbeddedServerError(f"the PostgreSQL in {self.home} has not been started")
        return self._passwords

    def _url(self, role: str, password: str, database: str) -> str:
        """Only scram is answered, so that whoever takes the port after a crash learns no password."""
        options = "sslmode=disable&gssencmode=disable&require_auth=scram-sha-256"
        return f"postgresql://{role}:{password}@127.0.0.1:{self._bound_port}/{database}?{options}"


def _create_role(password: str) -> sql.Composed:
    attributes = "LOGIN NOSUPERUSER NOCREATEDB CREATEROLE NOREPLICATION NOBYPASSRLS"
    return sql.SQL("CREATE ROLE {} " + attributes + " PASSWORD {}").format(
        sql.Identifier(ROLE), sql.Literal(password)
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
