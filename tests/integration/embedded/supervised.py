"""Servers in a supervisor of their own, and what a test asks of a server."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from slackwater.embedded import Postgres
from slackwater.embedded.leftovers import is_server_process
from slackwater.embedded.server_settings import cluster_name

REPOSITORY = Path(__file__).resolve().parents[3]

SUPERVISE = """
import sys
from pathlib import Path
from slackwater.embedded import Postgres
server = Postgres(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""

# One server as root first: it imports what the interpreter loads late and nobody may be unable to read.
SUPERVISE_AS_NOBODY = """
import os, sys
from pathlib import Path
from slackwater.embedded import Postgres
with Postgres(Path(sys.argv[1]).with_name("of root")):
    pass
os.chown(Path(sys.argv[1]).parent, 65534, 65534)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
""" + SUPERVISE.partition("Postgres\n")[2]


def query(server: Postgres, statement: str, *, admin: bool = False) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.admin_dsn if admin else server.dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def processes_of(server: Postgres) -> list[int]:
    title = cluster_name(server.data)
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if is_server_process(pid, server.data, title)]


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def supervised(home: Path, script: str = SUPERVISE) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A supervisor in another process, and the pid of its server."""
    command = [sys.executable, "-c", script, str(home)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
