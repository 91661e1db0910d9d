"""Making a new cluster: complete under its name, or not there at all."""

import os
import shutil
import tempfile
from pathlib import Path

from slackwater.embedded.accounts import Account
from slackwater.embedded.binaries import Binaries
from slackwater.embedded.errors import EmbeddedServerError
from slackwater.embedded.home import Home, sync_directory

ADMIN = "slackwater_admin"
_STAGING = "data-new-"


def cluster_exists(home: Home, major: str) -> bool:
    """Raises where `data` holds something else, or a cluster of another major version."""
    version = home.data / "PG_VERSION"
    if version.is_file():
        found = version.read_text().strip()
        if found != major:
            raise EmbeddedServerError(
                f"{home.data} was made by PostgreSQL {found} and this one is {major}: "
                f"dump it with the old version and load it into a new directory"
            )
        return True
    if home.data.exists() and any(home.data.iterdir()):
        raise EmbeddedServerError(f"{home.data} is not a PostgreSQL cluster and not empty; choose another directory")
    return False


def make_cluster(home: Home, binaries: Binaries, account: Account, admin_password: str) -> None:
    """Run initdb beside `data` and rename: what a crash leaves half-made is never taken for a cluster."""
    home.require_space()
    for stale in home.path.glob(f"{_STAGING}*"):
        shutil.rmtree(stale)
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=home.path))
    try:
        password_file = _write_password(staging, admin_password)
        for path in (password_file, staging) if account.lent else ():
            os.chown(path, account.uid, account.gid)
        _initdb(staging / "cluster", binaries, account, password_file)
        (staging / "cluster").rename(home.data)
        sync_directory(home.path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _initdb(target: Path, binaries: Binaries, account: Account, password_file: Path) -> None:
    """UTF8, C locale, scram for every connection, page checksums; on disk when this returns."""
    status, printed = account.run(
        [
            binaries.initdb,
            f"--pgdata={target}",
            f"--username={ADMIN}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--data-checksums",
            "--no-instructions",
        ]
    )
    if status:
        reason = "\n".join(printed.strip().splitlines()[-5:])
        raise EmbeddedServerError(f"initdb could not make a database in {target.parent.parent}:\n{reason}")


def _write_password(staging: Path, password: str) -> Path:
    file = staging / "password"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(password + "\n")
    return file
