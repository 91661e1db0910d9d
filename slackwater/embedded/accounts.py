"""Whom the server runs as: PostgreSQL refuses root, so root lends it a system user."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slackwater.embedded.errors import EmbeddedServerError

SYSTEM_USER = "slackwater-pg"
FALLBACK_USER = "postgres"

# initdb and postgres read PG* variables and the locale; neither may come from the caller's shell.
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PATH")


@dataclass(frozen=True)
class Account:
    """The user a server process runs as. `lent` means root starts it for that user."""

    name: str
    uid: int
    gid: int
    lent: bool

    def spawn(self, command: Sequence[str | Path], **options: object) -> subprocess.Popen[bytes]:
        """Start `command` in its own session, so that a terminal's Ctrl-C never reaches it."""
        if self.lent:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        try:
            return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                umask=0o077,
                cwd="/",
                env={**kept, "LC_ALL": "C", "TZ": "UTC"},
                **options,
            )
        except OSError as error:
            raise EmbeddedServerError(_why_not_executable(Path(command[0]), error)) from error

    def run(self, command: Sequence[str | Path]) -> tuple[int, str]:
        """Run `command` to its end; returns its exit status and all it printed."""
        with self.spawn(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                printed, _ = process.communicate()
            except BaseException:
                process.kill()
                raise
        return process.returncode, printed.decode(errors="replace")

    def first_closed(self, paths: Iterable[Path]) -> Path | None:
        """The first of these directories (or programs) that the account may not enter (or execute)."""
        script = 'for p do [ -x "$p" ] || { printf %s "$p"; exit 1; }; done'
        status, printed = self.run(["/bin/sh", "-c", script, "sh", *paths])
        return Path(printed) if status else None


def account_for(data: Path) -> Account:
    """The owner of an existing data directory, else whoever runs this; for root, a system user."""
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        return _unprivileged(data, owner)
    if owner:
        return _lent(_entry(owner))
    return _lent(_system_user())


def _unprivileged(data: Path, owner: int | None) -> Account:
    """Raises where the data belong to another user: PostgreSQL would refuse them with less of a reason."""
    own = _entry(os.geteuid())
    if owner not in (None, own.pw_uid):
        raise EmbeddedServerError(f"{data} belongs to uid {owner}; run as that user or choose another directory")
    return Account(own.pw_name, own.pw_uid, os.getegid(), lent=False)


def _lent(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, lent=True)


def _entry(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedServerError(
            f"uid {uid} has no passwd entry, which PostgreSQL needs; add one, or give the DSN of a server"
        ) from None


def _system_user() -> pwd.struct_passwd:
    """The user `slackwater-pg`, created where it is missing; an existing `postgres` where it cannot be."""
    found = _find(SYSTEM_USER)
    if found is None:
        reason = _create_system_user()
        found = _find(SYSTEM_USER) or _find(FALLBACK_USER)
    if found is None:
        raise EmbeddedServerError(
            f"PostgreSQL does not run as root, and no user for it could be made ({reason}). Create one with "
            f"`useradd --system {SYSTEM_USER}`, run slackwater as another user, or give the DSN of a server"
        )
    return found


def _find(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _create_system_user() -> str:
    """Returns why there is still no user, in the words of `useradd`; another process may have made it."""
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        return "useradd is not installed"
    options = [
        "--system",
        "--user-group",
        "--no-create-home",
        "--home-dir",
        "/",
        "--shell",
        "/usr/sbin/nologin",
    ]
    done = subprocess.run([program, *options, SYSTEM_USER], capture_output=True, text=True, check=False)
    return done.stderr.strip()


def _why_not_executable(program: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and program.exists():
        return f"{program} needs the GNU C library, which this system (musl?) lacks; give the DSN of a server"
    return (
        f"{program} cannot be executed ({error.strerror}): its directory may be mounted noexec, "
        f"or it was built for another processor. Move it, or give the DSN of a server"
    )
