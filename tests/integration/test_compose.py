"""docker-compose.yml without containers: the same commands in the same order, beside an embedded PostgreSQL and Valkey."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from openai import OpenAI
from psycopg import sql

from slackwater.embedded import Postgres, Valkey
from tests.conftest import database_url
from tests.integration.compose_file import services
from tests.processes import ROOT, SLACKWATER, environment, run
from tests.scenario import chat_line
from tests.waiting import until

ONE_SHOT = ("migrate", "instance")
SERVERS = ("postgres", "redis")
PARTS = ("api", "celery-worker", "celery-beat", "dispatch", "worker")
VARIABLES = {
    "POSTGRES_PASSWORD": "a",
    "SLACKWATER_DB_PASSWORD": "b",
    "REDIS_PASSWORD": "c",
    "SLACKWATER_MASTER_KEY": "A" * 43 + "=",
    "INSTANCE_NAME": "upstream",
    "INSTANCE_ENGINE": "echo",
    "INSTANCE_MODEL": "tiny-chat",
}


@dataclass
class Host:
    """What stands in for the containers' network: where the two servers and the API are reached here."""

    database_url: str
    redis_url: str
    port: int
    logs: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment_of(self, service: dict[str, Any]) -> dict[str, str]:
        """The service's own, with the hosts `postgres` and `redis` in its URLs replaced."""
        values = dict(service["environment"])
        for name, host, here in (
            ("SLACKWATER_DATABASE_URL", "postgres", self.database_url),
            ("SLACKWATER_REDIS_URL", "redis", self.redis_url),
        ):
            assert urlsplit(values[name]).hostname == host
            values[name] = here
        return environment(**values)

    def command_of(self, service: dict[str, Any]) -> list[str]:
        program, *arguments = service["command"]
        assert program == "slackwater"
        return [*SLACKWATER, *(str(self.port) if argument == "8000" else argument for argument in arguments)]

    def complete_a_batch(self, key: str) -> list[str]:
        """Submit three requests, wait for the end, and return the lines of the output."""
        with OpenAI(base_url=f"{self.url}/v1", api_key=key) as client:
            data = b"\n".join(chat_line(f"r{n}") for n in range(3))
            file = client.files.create(file=("in.jsonl", data), purpose="batch")
            batch = client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            until(lambda: client.batches.retrieve(batch.id).status == "completed", about=self.said)
            output = client.batches.retrieve(batch.id).output_file_id
            assert output is not None
            return client.files.content(output).text.splitlines()

    def said(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-500:]}" for log in self.logs.iterdir())


@pytest.fixture
def host(postgres: Postgres, tmp_path: Path) -> Iterator[Host]:
    """An empty database of the role `slackwater`, which `migrate` has to fill, and a Valkey."""
    name = f"compose_{uuid4().hex[:12]}"
    with psycopg.connect(postgres.admin_dsn, autocommit=True) as admin, Valkey(tcp=True) as valkey:
        admin.execute(sql.SQL("CREATE DATABASE {} OWNER slackwater").format(sql.Identifier(name)))
        here = Host(database_url(postgres.dsn, name), valkey.url, _free_port(), tmp_path)
        try:
            yield here
        finally:
            for process in here.running.values():
                process.kill()
                process.wait(60)
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_its_commands_complete_a_batch(host: Host) -> None:
    for name, service in services(VARIABLES).items():
        if name in SERVERS:
            continue
        _start(host, name, service)
    env = host.environment_of(services(VARIABLES)["api"])
    assert run("tenants", "create", "acme", env=env).returncode == 0
    key = run("keys", "create", "--tenant", "acme", env=env).stdout.strip()
    assert len(host.complete_a_batch(key)) == 3
    for process in host.running.values():
        process.send_signal(signal.SIGTERM)
    assert {name: process.wait(60) for name, process in host.running.items()} == dict.fromkeys(PARTS, 0)


def _start(host: Host, name: str, service: dict[str, Any]) -> None:
    """As Compose does: a one-shot service must succeed, the API must become healthy, the others run."""
    command, env = host.command_of(service), host.environment_of(service)
    if name in ONE_SHOT:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return
    with (host.logs / f"{name}.log").open("wb") as log:
        host.running[name] = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    if name == "api":
        until(lambda: _is_healthy(host, service), about=host.said)


def _is_healthy(host: Host, service: dict[str, Any]) -> bool:
    """Run the service's own health check."""
    kind, program, *arguments = service["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    here = [argument.replace("127.0.0.1:8000", f"127.0.0.1:{host.port}") for argument in arguments]
    return subprocess.run([SLACKWATER[0], *here], capture_output=True, timeout=10, check=False).returncode == 0


def test_every_part_is_there_and_waits_for_the_migration() -> None:
    found = services(VARIABLES)
    assert set(found) == {*SERVERS, *ONE_SHOT, *PARTS}
    for name in PARTS:
        needed = found[name]["depends_on"]
        before = "instance" if name == "worker" else "migrate"
        assert needed[before] == {"condition": "service_completed_successfully"}
        assert found[name]["restart"] == "unless-stopped"
    assert found["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert all(found[name]["restart"] == "no" for name in ONE_SHOT)
    assert all("healthcheck" in found[name] for name in (*SERVERS, "api"))


@pytest.mark.parametrize(
    "name", ["POSTGRES_PASSWORD", "SLACKWATER_DB_PASSWORD", "REDIS_PASSWORD", "SLACKWATER_MASTER_KEY"]
)
def test_no_secret_has_a_default(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        services(VARIABLES | {name: ""})


def test_the_environment_example_names_every_needed_variable() -> None:
    lines = (ROOT / "deploy" / ".env.example").read_text().splitlines()
    named = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    assert set(VARIABLES) <= named


def test_the_image_holds_every_package_of_the_wheel() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    copied = {words[1] for words in map(str.split, dockerfile.splitlines()) if words[:1] == ["COPY"]}
    assert {"api", "workers", "scheduler", "slackwater", "migrations"} <= copied


def test_the_image_takes_what_the_locks_say() -> None:
    """No package comes from an index without its hash, but torch, which the locks leave out."""
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    installs = [step.strip() for step in re.split("&&|; then|RUN |\n", dockerfile) if "pip install" in step]
    from_index = [step for step in installs if "/wheels/*.whl" not in step and "torch.txt" not in step]
    assert len(installs) == 5
    assert {step.rpartition("/")[2] for step in from_index} == {"base.txt", "build.txt", "engine.txt"}
    assert all("--require-hashes --no-deps -r " in step for step in from_index)


def test_the_login_role_is_made_as_the_tests_use_it(postgres: Postgres) -> None:
    script = (ROOT / "deploy" / "postgres" / "10-slackwater.sh").read_text()
    assert os.access(ROOT / "deploy" / "postgres" / "10-slackwater.sh", os.X_OK)
    (statement,) = (line for line in script.splitlines() if line.startswith("CREATE ROLE"))
    with psycopg.connect(postgres.dsn) as connection:
        row = connection.execute(
            "SELECT rolcanlogin, rolsuper, rolcreaterole, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
    assert row == (True, False, True, False)
    assert "LOGIN NOSUPERUSER CREATEROLE" in statement


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
