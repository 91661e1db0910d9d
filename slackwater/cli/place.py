"""The data directory of `slackwater up`: what it keeps there, and how other commands on this host find it.

DIR/postgres/       the embedded PostgreSQL
DIR/logs/           what each part logs
DIR/master_key      0600, made at the first start where SLACKWATER_MASTER_KEY is not set
DIR/api_key         0600, the key that `up` prints, so that every start prints the same one
DIR/running.json    0600, the URLs of the database and of the API while `up` runs
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.errors import Misconfigured

if TYPE_CHECKING:
    from pydantic import SecretStr

    from slackwater.settings import Settings


@dataclass(frozen=True, slots=True)
class Running:
    """Where a running `slackwater up` is reached."""

    database_url: str
    url: str


@dataclass(frozen=True, slots=True)
class Place:
    """One data directory."""

    path: Path

    @classmethod
    def of(cls, settings: Settings, chosen: Path | None = None) -> Place:
        """The one that was chosen or set; else, as root, one that PostgreSQL's own user may enter, or the home's."""
        from slackwater.embedded.home import default_home

        if chosen is None:
            chosen = settings.data_dir if "data_dir" in settings.model_fields_set else default_home().parent
        return cls(chosen.expanduser().resolve())

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def api_key(self) -> Path:
        return self.path / "api_key"

    @property
    def running(self) -> Path:
        return self.path / "running.json"

    def prepare(self) -> None:
        """Make what is missing.

        Raises:
            Misconfigured: the directory cannot be made or written.
        """
        try:
            if not self.path.exists():
                self.path.mkdir(parents=True)
                # The user that root lends to PostgreSQL has to pass through; what is secret in here is 0600.
                self.path.chmod(0o755 if os.geteuid() == 0 else 0o700)
            self.logs.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Misconfigured(f"{self.path} cannot hold the data: {error.strerror} ({error.filename})") from error

    def master_key(self) -> str | None:
        """The key that was made here; None where there is none."""
        return read(self.path / "master_key")

    def ensure_master_key(self) -> str:
        """The key that was made here, made now if there is none."""
        found = self.master_key()
        if found is None:
            found = base64.b64encode(secrets.token_bytes(32)).decode()
            write(self.path / "master_key", found)
        return found

    def whereabouts(self) -> Running | None:
        """Of the `up` that runs here; None where none does, or where its file is not ours to read."""
        try:
            return Running(**json.loads(self.running.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def read(file: Path) -> str | None:
    """The text of a small file without its last line end; None where there is none."""
    try:
        return file.read_text().strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from error


def write(file: Path, text: str) -> None:
    """Put `text` in `file`, 0600, complete or not at all."""
    staging = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text + "\n")
        out.flush()
        os.fsync(out.fileno())
    staging.replace(file)


def local_settings() -> Settings:
    """The settings; what is not set is taken from the `slackwater up` of this data directory, if one runs."""
    from pydantic import SecretStr

    from slackwater.settings import settings

    own = settings()
    place = Place.of(own)
    missing: dict[str, SecretStr] = {}
    if own.database_url is None and (running := place.whereabouts()) is not None:
        missing["database_url"] = SecretStr(running.database_url)
        if own.master_key is None and (key := place.master_key()) is not None:
            missing["master_key"] = SecretStr(key)
    return own.model_copy(update=missing)
