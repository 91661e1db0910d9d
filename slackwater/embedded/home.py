"""The supervisor's own directory: the cluster, its passwords, its logs and two locks.

home/                  root: 0710, so that only the server's user passes through; else 0700
    data/              the cluster, 0700, owned by the server's user
    log/               the server's log, one file a weekday, overwritten a week later
    startup.log        what the server printed before it opened its log
    passwords.json     0600, never inside data/
    supervisor.lock    held by the supervisor; holds its pid
    server.lock        held by every process of the server, so that a free lock proves that all are gone
"""

import fcntl
import json
import os
import secrets
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from slackwater.embedded.accounts import Account
from slackwater.embedded.errors import EmbeddedServerError

FREE_BYTES_NEEDED = 256 << 20
_PID_WRITTEN_WITHIN_SECONDS = 1.0


@dataclass(frozen=True)
class Passwords:
    """Of the superuser and of the application's role; URL-safe text of 256 random bits."""

    admin: str
    application: str

    @classmethod
    def generate(cls) -> "Passwords":
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32))


@dataclass(frozen=True)
class Home:
    """Paths inside one directory of ours; modes are set on what this makes, and on nothing else."""

    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def startup_log(self) -> Path:
        return self.path / "startup.log"

    @property
    def server_lock(self) -> Path:
        return self.path / "server.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.path / "supervisor.lock"

    def prepare(self, account: Account) -> None:
        """Make what is missing. Raises where the place cannot be written, entered or filled."""
        try:
            self._make(account)
        except OSError as error:
            raise EmbeddedServerError(
                f"{self.path} cannot hold the database: {error.strerror} ({error.filename}); "
                f"choose a directory on a disk that this user may write"
            ) from error
        closed = account.first_closed([*reversed(self.path.parents), self.path]) if account.lent else None
        if closed is not None:
            raise EmbeddedServerError(
                f"the system user {account.name}, whom PostgreSQL runs as, may not enter {closed}; "
                f"choose a directory such as /var/lib/slackwater, or open {closed} to that user yourself"
            )

    def _make(self, account: Account) -> None:
        for parent in reversed(self.path.parents):
            _make_directory(parent, 0o755)
        if _make_directory(self.path, 0o710 if account.lent else 0o700) and account.lent:
            os.chown(self.path, -1, account.gid)
        if _make_directory(self.log, 0o700) and account.lent:
            os.chown(self.log, account.uid, account.gid)

    def require_space(self) -> None:
        """Raises where a new cluster would soon fill the disk."""
        free = shutil.disk_usage(self.path).free
        if free < FREE_BYTES_NEEDED:
            raise EmbeddedServerError(
                f"{self.path} has {free >> 20} MiB free and the database needs {FREE_BYTES_NEEDED >> 20}; "
                f"free some space or choose a directory on another disk"
            )

    def passwords(self) -> Passwords:
        """Those of the cluster; new ones are on disk before a cluster exists that believes in them."""
        file = self.path / "passwords.json"
        try:
            return Passwords(**json.loads(file.read_text()))
        except FileNotFoundError:
            if (self.data / "PG_VERSION").exists():
                raise EmbeddedServerError(
                    f"{file} is missing, and {self.data} opens with no other password; "
                    f"restore the file, or move {self.data} away to begin anew"
                ) from None
        except (OSError, ValueError, TypeError) as error:
            raise EmbeddedServerError(f"{file} cannot be read ({error}); restore it from a backup") from error
        return _write_passwords(file, Passwords.generate())

    def claim(self) -> int:
        """Take the supervisor's lock; returns the descriptor that holds it until closed or until we die."""
        descriptor = try_lock(self.supervisor_lock)
        if descriptor is None:
            holder = _holder_of(self.supervisor_lock)
            raise EmbeddedServerError(
                f"{self.path} is already served by process {holder}; stop that one, or choose another directory"
            )
        os.pwrite(descriptor, f"{os.getpid():<20}\n".encode(), 0)
        return descriptor


def default_home() -> Path:
    """Where a cluster lives unless told: a system user may enter the first, only its owner the second."""
    if os.geteuid() == 0:
        return Path("/var/lib/slackwater/postgres")
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "slackwater" / "postgres"


def try_lock(file: Path) -> int | None:
    """An exclusive lock that ends with the last process that holds the descriptor; None if it is taken."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_directory(path: Path, mode: int) -> bool:
    """Whether this made it; an existing directory keeps its mode."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return False
    path.chmod(mode)
    return True


def _holder_of(lock: Path) -> str:
    """The pid written in a lock that another process took, perhaps a moment ago and not yet signed."""
    deadline = time.monotonic() + _PID_WRITTEN_WITHIN_SECONDS
    while time.monotonic() < deadline:
        pid = lock.read_text().strip()
        if pid.isdigit() and Path("/proc", pid).exists():
            return pid
        time.sleep(0.02)
    return "(unknown, perhaps in another container)"


def _write_passwords(file: Path, passwords: Passwords) -> Passwords:
    staging = file.with_suffix(".new")
    staging.unlink(missing_ok=True)
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        json.dump(asdict(passwords), out)
        out.flush()
        os.fsync(out.fileno())
    staging.rename(file)
    sync_directory(file.parent)
    return passwords
