"""Every process of the product, for real, on an embedded PostgreSQL: started, killed, stopped and continued by a test."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg

from slackwater.cli.administer import as_admin
from slackwater.embedded import Postgres
from slackwater.storage import migrate
from slackwater.tenancy import keys
from tests.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
CHILD = [sys.executable, "-m", "slackwater.cli.main"]


@dataclass
class Cluster:
    """A folder, a server, and processes by name, such as `worker-1`."""

    home: Path
    environment: dict[str, str]
    postgres: Postgres
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    server: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, *, server: Mapping[str, str] = MappingProxyType({}), **settings: str) -> Cluster:
        """A migrated database; nothing else runs yet. `settings` are SLACKWATER_ names in lower case, `server` those of PostgreSQL."""
        home = Path(tempfile.mkdtemp(prefix="slackwater-cluster-"))
        home.chmod(0o755)
        postgres = Postgres(home / "postgres", settings={"max_connections": "200", **server})
        dsn = postgres.start()
        migrate.upgrade(dsn)
        names = {f"SLACKWATER_{name.upper()}": value for name, value in settings.items()}
        environment = os.environ | {
            "SLACKWATER_DATABASE_URL": dsn,
            "SLACKWATER_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
            "SLACKWATER_PORT": "0",
            "SLACKWATER_LEASE_SECONDS": "2",
            "SLACKWATER_GRACE_SECONDS": "1",
            "SLACKWATER_WEBHOOK_ALLOW": '["127.0.0.1/32"]',
            "SLACKWATER_WEBHOOK_ALLOW_HTTP": "true",
            "PYTHONPATH": str(ROOT),
        }
        return cls(home, environment | names, postgres, server=server)

    @property
    def dsn(self) -> str:
        return self.environment["SLACKWATER_DATABASE_URL"]

    def scenario(self, **options: Any) -> Scenario:
        return Scenario.on(self.dsn, **options)

    def key(self, tenant: str = "acme") -> str:
        """A client's key for a tenant that exists."""
        return as_admin(self.dsn, lambda connection: keys.create(connection, tenant)).text

    def start(self, name: str) -> None:
        """Start `api-1`, `worker-2` (instance `echo`), `duties-1`, `dispatch-1`; an api's URL is known when this returns."""
        role = name.partition("-")[0]
        command = [*CHILD, role, *(["--instance", "echo"] if role == "worker" else [])]
        log = (self.home / f"{name}.log").open("a")
        process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE if role == "api" else log,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        log.close()
        self.processes[name] = process
        if role == "api":
            assert process.stdout is not None
            line = process.stdout.readline()
            if line.startswith("ready "):
                self.urls[name] = line.split()[1]
            process.stdout.close()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        self.processes[name].kill()
        self.processes[name].wait()

    def freeze_postgres(self, seconds: float) -> None:
        """The server answers nobody for so long, and goes on: connections stay open, as on a host that stalls."""
        assert self.postgres.pid is not None
        server = self.postgres.pid
        os.kill(server, signal.SIGSTOP)
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        pids = [server, *map(int, children)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                # A backend whose client left meanwhile ends as soon as it may.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number is signal.SIGSTOP:
                time.sleep(seconds)

    def crash_postgres(self, seconds: float = 0) -> None:
        """SIGKILL the server and start it again on the same port, after so long."""
        port = psycopg.conninfo.conninfo_to_dict(self.dsn)["port"]
        assert self.postgres.pid is not None
        os.kill(self.postgres.pid, signal.SIGKILL)
        self.postgres.stop()
        time.sleep(seconds)
        self.postgres = Postgres(
            self.home / "postgres", port=int(str(port)), settings={"max_connections": "200", **self.server}
        )
        assert self.postgres.start() == self.dsn

    def stop(self) -> dict[str, int]:
        """SIGTERM to all; returns their exit codes. Then the server."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        codes = {name: process.wait(60) for name, process in self.processes.items()}
        self.postgres.stop()
        return codes

    def remove(self) -> None:
        """End what still runs, and the folder."""
        import shutil

        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.postgres.is_running():
            self.postgres.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def logs(self) -> str:
        """The last lines of every process, for a failure's message."""
        return "\n".join(f"== {p.name}\n{p.read_text()[-1500:]}" for p in sorted(self.home.glob("*.log")))
