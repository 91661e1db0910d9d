"""What an earlier server left behind: living processes, a stale or recycled `postmaster.pid`.

A living server without a supervisor is stopped, not adopted: the next one then has today's settings and
program, is our child (its exit is seen at once), and every start takes one path. Its committed rows are safe
either way.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slackwater.embedded.errors import EmbeddedServerError
from slackwater.embedded.home import try_lock

# Fast shutdown with a checkpoint; then exit at once and recover; then the kernel's.
ESCALATION = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
# Without a postmaster its children have no one to wait for: they go by themselves once idle.
ORPHAN_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.02


def settle(data: Path, title: str, lock: Path, progress: Callable[[str], None]) -> int:
    """End every process of the server on `data` and return its lock, now ours.

    `title` begins the process titles of this server's children. Raises EmbeddedServerError where a
    process holds on that this one cannot see or signal.
    """
    held = try_lock(lock)
    if held is None:
        progress("an earlier PostgreSQL still runs on this directory: stopping it")
        held = _stop_all(data, title, lock)
    try:
        _forget_postmaster(data, title, progress)
    except BaseException:
        os.close(held)
        raise
    return held


def is_server_process(pid: int, data: Path, title: str) -> bool:
    """Whether `pid` is alive and a PostgreSQL process of exactly this data directory."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    if words[0].startswith(f"postgres: {title}: "):
        return True
    return _is_postmaster_command(words, data) or _works_in(pid, data, words)


def _is_postmaster_command(words: list[str], data: Path) -> bool:
    return Path(words[0]).name == "postgres" and str(data) in words[1:]


def _works_in(pid: int, data: Path, words: list[str]) -> bool:
    """PostgreSQL's processes stand in their data directory; this finds one started by hand or since moved."""
    if not Path(words[0].split(":")[0]).name.startswith("postgres"):
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cwd").samefile(data)
    return False


def _stop_all(data: Path, title: str, lock: Path) -> int:
    for number, patience in ESCALATION:
        postmaster = _postmaster_pid(data)
        leads = postmaster is not None and is_server_process(postmaster, data, title)
        for pid in [postmaster] if leads and postmaster else list(_server_processes(data, title)):
            signal_process(pid, number, data, title)
        held = _lock_within(lock, patience if leads else ORPHAN_PATIENCE_SECONDS)
        if held is not None:
            return held
    raise EmbeddedServerError(
        f"a PostgreSQL still runs on {data} and cannot be stopped from here; "
        f"it may run in another container or for another user: stop it there"
    )


def _server_processes(data: Path, title: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_server_process(int(entry.name), data, title):
            yield int(entry.name)


def signal_process(pid: int, number: signal.Signals, data: Path, title: str) -> None:
    """Signal `pid` if it is still this server's; the descriptor keeps a recycled pid from being hit."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_server_process(pid, data, title):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _lock_within(lock: Path, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while (held := try_lock(lock)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return held


def _postmaster_pid(data: Path) -> int | None:
    """The first line of `postmaster.pid`; None where the file is absent or torn."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    return None


def _forget_postmaster(data: Path, title: str, progress: Callable[[str], None]) -> None:
    """Remove a `postmaster.pid` whose pid another process has now; PostgreSQL itself handles a dead pid.

    A server of this directory that does not hold our lock was started by hand: that one is not ours to stop.
    """
    pid = _postmaster_pid(data)
    if pid is not None and is_server_process(pid, data, title):
        raise EmbeddedServerError(f"process {pid} is a PostgreSQL started by hand on {data}; stop it first")
    if pid is None or Path(f"/proc/{pid}").exists():
        with contextlib.suppress(FileNotFoundError):
            (data / "postmaster.pid").unlink()
            progress("removed a stale postmaster.pid: it names no process of this server")
