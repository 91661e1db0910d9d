"""The database of an `up`: the one that is set, else an embedded PostgreSQL that is watched and guarded."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from slackwater.cli.up import guard

if TYPE_CHECKING:
    from slackwater.cli.place import Place
    from slackwater.embedded import Postgres

GUARD: Final = Path(guard.__file__)


@dataclass
class External:
    """Somebody else's server: nothing to start, to watch or to stop."""

    dsn: str

    def revive(self) -> None:
        return None

    def write_out(self) -> None:
        return None


@dataclass
class Embedded:
    """Our own server, and the guard that stops it when we are killed."""

    server: Postgres
    tell: Callable[[str], None]
    _guard: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return self.server.dsn

    def start(self) -> None:
        """Serve; from now on at the same port, which the parts know."""
        self.server.start()
        self.server.port = urlsplit(self.server.dsn).port
        self._watch_over()

    def revive(self) -> None:
        """Start the server again if it died."""
        if not self.server.is_running():
            self.tell("PostgreSQL ended: starting it again")
            self._dismiss_guard()
            self.start()

    def write_out(self) -> None:
        """Begin with what makes a stop last, while the parts still stop: a checkpoint."""
        import psycopg

        with contextlib.suppress(psycopg.Error), psycopg.connect(self.server.admin_dsn, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    def stop(self) -> None:
        self.server.stop()
        self._dismiss_guard()

    def _watch_over(self) -> None:
        assert self.server.pid is not None
        descriptor = os.pidfd_open(self.server.pid)
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", GUARD, str(descriptor)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[descriptor], start_new_session=True, cwd="/",
            )  # fmt: skip
        finally:
            os.close(descriptor)

    def _dismiss_guard(self) -> None:
        """It ends once its input ends and finds the server gone."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            self._guard = None


@contextmanager
def database_for(dsn: str | None, place: Place, tell: Callable[[str], None]) -> Iterator[External | Embedded]:
    """The database to use: `dsn` always wins. An embedded one is stopped at the end of the block.

    Raises:
        EmbeddedServerError: it cannot run here; the message says why.
    """
    if dsn is not None:
        yield External(dsn)
        return
    from slackwater.embedded import Postgres

    tell("starting PostgreSQL")
    embedded = Embedded(Postgres(place.postgres, progress=tell), tell)
    try:
        embedded.start()
        yield embedded
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            embedded.stop()
