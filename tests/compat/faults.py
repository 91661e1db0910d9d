"""An API process that can be cut off from its clients and from its database, killed and started again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.acceptance.cluster import ROOT, Cluster
from tests.compat.relay import Address, Relay
from tests.waiting import until

COMMAND = (sys.executable, "-m", "slackwater.cli.main", "api")


def is_committing_a_batch(sent: bytes) -> bool:
    """The connection has sent the row of a batch, and then COMMIT."""
    _, found, after = sent.partition(b"INSERT INTO batch ")
    return bool(found) and b"COMMIT" in after


@dataclass
class FaultyApi:
    """`url` stays the same through every fault."""

    cluster: Cluster
    front: Relay = field(default_factory=lambda: Relay(None))
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.cluster.dsn)
        assert parts.hostname
        assert parts.port
        self._database: Address = (parts.hostname, parts.port)
        self.back = Relay(self._database)
        self._dsn = self.cluster.dsn.replace(f"@{parts.hostname}:{parts.port}/", f"@127.0.0.1:{self.back.port}/")
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.front.port}"

    def start(self) -> None:
        """A new process, and clients are let through to it."""
        environment = self.cluster.environment | {"SLACKWATER_DATABASE_URL": self._dsn}
        self.process = subprocess.Popen(
            COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        word, url = self.process.stdout.readline().split()
        self.process.stdout.close()
        assert word == "ready"
        port = urlsplit(url).port
        assert port
        self.front.target = ("127.0.0.1", port)

    def kill(self) -> None:
        """SIGKILL; clients are refused until the next start."""
        self.front.target = None
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def die_between_commit_and_reply(self) -> None:
        """Let the next batch be committed, and kill the process before it learns of that. Returns when it serves again."""
        assert self.back.held.wait(60), "no batch was committed"
        self.kill()
        self.back.is_last_word = None
        self.back.held.clear()
        self.start()

    def lose_the_database(self) -> None:
        self.back.target = None
        self.back.break_all()
        self.front.answers.clear()

    def heal_once_refused(self) -> None:
        """Give the database back when a client was told 503."""
        until(
            lambda: any(b" 503 " in answer for answer in list(self.front.answers)),
            about=lambda: str(self.front.answers),
        )
        self.back.target = self._database

    def close(self) -> None:
        self.kill()
        self.front.close()
        self.back.close()
