"""The administration by command line: real processes on a real database; what is on which stream, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest

from tests.processes import SLACKWATER, environment, run, start
from tests.scenario import chat_line
from tests.waiting import until

Command = Callable[..., "subprocess.CompletedProcess[str]"]
MASTER_KEY = "A" * 43 + "="
HEAVY = ("torch", "fastapi", "sqlalchemy", "psycopg", "celery", "alembic", "aiohttp", "pydantic")


@pytest.fixture
def command(dsn: str, tmp_path: Path) -> Command:
    """Run a command of `slackwater` on the test's database."""
    env = environment(SLACKWATER_DATABASE_URL=dsn, SLACKWATER_MASTER_KEY=MASTER_KEY, SLACKWATER_DATA_DIR=str(tmp_path))
    return lambda *arguments, **more: run(*arguments, env=env | more)


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What a command printed with --json."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['slackwater', '--help']\n"
        "from slackwater.cli.main import app\n"
        "try: app()\nexcept SystemExit: pass\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for name in ("up", "api", "worker", "duties", "dispatch", "migrate", "keys", "batches", "instances", "celery"):
        assert name in done.stdout


def test_a_key_is_alone_on_standard_output_and_stored_hashed(command: Command, dsn: str) -> None:
    objects(command("tenants", "create", "acme", "--json"))
    done = command("keys", "create", "--tenant", "acme", "--scope", "batches:read", "--name", "reader")
    key = done.stdout.strip()
    assert done.returncode == 0
    assert key.startswith("sk-live_")
    assert done.stdout.count("\n") == 1
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT k::text FROM api_key k").fetchall()
    assert rows
    assert all(key not in text for (text,) in rows)
    (shown,) = objects(command("keys", "list", "--tenant", "acme", "--json"))
    assert (shown["name"], shown["scopes"], shown["last4"]) == ("reader", ["batches:read"], key[-4:])
    (revoked,) = objects(command("keys", "revoke", shown["public_id"], "--json"))
    assert revoked["revoked_at"]


def test_tenants_and_projects(command: Command) -> None:
    (made,) = objects(command("tenants", "create", "acme", "--weight", "3", "--json"))
    assert (made["name"], made["weight"]) == ("acme", 3)
    objects(command("projects", "create", "night", "--tenant", "acme", "--json"))
    assert [p["name"] for p in objects(command("projects", "list", "--tenant", "acme", "--json"))] == [
        "default",
        "night",
    ]
    assert objects(command("tenants", "suspend", "acme", "--json"))[0]["suspended_at"]
    assert objects(command("tenants", "resume", made["public_id"], "--json"))[0]["suspended_at"] is None
    assert [t["name"] for t in objects(command("tenants", "list", "--json"))] == ["acme"]


def test_models_and_prices(command: Command) -> None:
    objects(command("tenants", "create", "acme", "--json"))
    (made,) = objects(command("models", "create", "tiny", "--closed", "--json"))
    assert made["is_open"] is False
    assert command("models", "allow", "tiny", "--tenant", "acme").returncode == 0
    assert command("models", "disallow", "tiny", "--tenant", "acme").returncode == 0
    (price,) = objects(command("prices", "create", "tiny", "--input", "0.15", "--output", "0.6", "--json"))
    assert (price["input"], price["cached"], price["output"]) == ("0.15", "0.15", "0.6")
    objects(command("prices", "create", "tiny", "--input", "1", "--cached", "0.1", "--output", "2", "--json"))
    assert [p["cached"] for p in objects(command("prices", "list", "--model", "tiny", "--json"))] == ["0.1", "0.15"]


def test_an_instance_and_its_key(command: Command, dsn: str) -> None:
    arguments = (
        "instances",
        "create",
        "big",
        "--url",
        "http://127.0.0.1:9/v1",
        "--model",
        "a=b",
        "--model",
        "c",
        "--json",
    )
    (made,) = objects(command(*arguments, "--gpu", "GPU-1", "--api-key-env", "UPSTREAM", UPSTREAM="hush"))
    assert made["models"] == {"a": "b", "c": "c"}
    assert made["gpus"] == ["GPU-1"]
    assert made["has_api_key"] is True
    with psycopg.connect(dsn) as connection:
        (sealed,) = connection.execute("SELECT api_key FROM instance").fetchone() or (b"",)
    assert sealed
    assert b"hush" not in sealed
    assert objects(command(*arguments, "--if-missing"))[0]["public_id"] == made["public_id"]
    assert command(*arguments).returncode == 1
    assert objects(command("instances", "disable", "big", "--json"))[0]["disabled_at"]
    assert objects(command("instances", "enable", "big", "--json"))[0]["disabled_at"] is None


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("keys", "create", "--tenant", "nobody"), 1, "slackwater: No such tenant."),
        (("worker", "--instance", "none"), 1, "slackwater: no enabled instance is named 'none'"),
        (("instances", "create", "x", "--model", "m", "--url", "ftp://h"), 1, "slackwater: An upstream needs an http"),
        (("instances", "create", "x", "--model", "m", "--engine", "magic"), 2, "unknown engine"),
        (("prices", "create", "m", "--input", "free", "--output", "1"), 2, "dollars a million"),
        (("celery", "flower"), 2, "worker or beat"),
        (("celery", "beat"), 1, "slackwater: SLACKWATER_REDIS_URL is not set"),
        (("batches", "list"), 1, "slackwater: set SLACKWATER_URL and SLACKWATER_API_KEY"),
        (("up", "--engine", "magic"), 1, "slackwater: --engine is local, echo, or the URL"),
        (
            ("up", "--engine", "http://127.0.0.1:1", "--port", "0"),
            1,
            "slackwater: http://127.0.0.1:1/v1/models does not list",
        ),
    ],
)
def test_what_goes_wrong_is_said_on_standard_error(
    command: Command, arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_database_it_says_what_to_set(tmp_path: Path) -> None:
    done = run("tenants", "list", env=environment(SLACKWATER_DATA_DIR=str(tmp_path)))
    assert done.returncode == 1
    assert done.stderr.startswith("slackwater: SLACKWATER_DATABASE_URL is not set")


@pytest.fixture
def served(command: Command, dsn: str) -> Iterator[dict[str, str]]:
    """The parts, each started by its own command; where they are reached, for a client's environment."""
    command("tenants", "create", "acme")
    command("instances", "create", "echo", "--engine", "echo", "--model", "tiny-chat", "--max-slots", "4")
    key = command("keys", "create", "--tenant", "acme").stdout.strip()
    env = environment(SLACKWATER_DATABASE_URL=dsn, SLACKWATER_MASTER_KEY=MASTER_KEY)
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with ExitStack() as stack:
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        parts = (("api", "--port", "0"), ("duties",), ("dispatch",))
        running = [start(*part, env=env, **quiet | {"stdout": out}) for part, out in zip(parts, said, strict=True)]
        running.append(start("worker", "--instance", "echo", env=env, **quiet))
        try:
            words = [until(partial(_text, out)).split() for out in said]
            until(lambda: _is_registered(dsn))
            assert [word for word, *_ in words] == ["ready"] * 3
            yield {"SLACKWATER_URL": words[0][1], "SLACKWATER_API_KEY": key}
        finally:
            for process in running:
                process.terminate()
            statuses = [process.wait(60) for process in running]
        assert statuses == [0, 0, 0, 0]


def _text(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), 4096, 0).decode()


def _is_registered(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT 1 FROM worker").fetchone() is not None


def test_a_batch_from_a_shell(command: Command, served: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\n".join(chat_line(f"r{n}") for n in range(3)) + b"\n")
    (batch,) = objects(command("batches", "submit", str(file), "--wait", "--json", **served))
    assert batch["status"] == "completed"
    lines = command("batches", "output", batch["id"], **served).stdout.splitlines()
    assert {json.loads(line)["custom_id"] for line in lines} == {"r0", "r1", "r2"}
    assert [b["id"] for b in objects(command("batches", "list", "--json", **served))] == [batch["id"]]
    assert batch["id"] in command("batches", "show", batch["id"], **served).stdout
    refused = command("batches", "cancel", batch["id"], **served)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Traceback" not in refused.stderr
    wrong = command("batches", "list", **(served | {"SLACKWATER_API_KEY": "sk-wrong"}))
    assert wrong.stderr == "slackwater: Incorrect API key provided.\n"


def test_a_table_for_a_person(command: Command) -> None:
    made = command("tenants", "create", "acme")
    assert made.stdout.split()[:2] == ["public_id", "name"]
    assert "acme" in made.stdout
    assert made.stderr == ""


def test_a_taken_port_of_the_api_is_one_line(command: Command, served: dict[str, str]) -> None:
    port = served["SLACKWATER_URL"].rpartition(":")[2]
    done = command("api", "--port", port)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"slackwater: cannot listen on 127.0.0.1:{port}" in done.stderr


def test_the_console_script_is_this_program() -> None:
    import tomllib

    from tests.processes import ROOT

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"slackwater": "slackwater.cli.main:main"}
    assert SLACKWATER[-1] == "slackwater.cli.main"
