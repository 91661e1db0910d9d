"""`slackwater migrate`: up, down, up again, in two phases, two at once, and from an installed wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from slackwater.embedded import Postgres
from slackwater.storage import migrate
from tests.conftest import database_url
from tests.processes import ROOT, environment, run, start

TABLES = "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'"


@pytest.fixture
def empty(postgres: Postgres) -> Iterator[str]:
    """An empty database of the login role."""
    name = f"migrate_{uuid4().hex[:12]}"
    with psycopg.connect(postgres.admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} OWNER slackwater").format(sql.Identifier(name)))
        yield database_url(postgres.dsn, name)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def tables(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(TABLES).fetchone()
    assert row is not None
    return int(row[0])


def command(dsn: str, *arguments: str) -> str:
    done = run("migrate", *arguments, env=environment(SLACKWATER_DATABASE_URL=dsn))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_up_down_and_up_again(empty: str) -> None:
    assert command(empty) == migrate.newest()
    filled = tables(empty)
    assert filled > 20
    assert command(empty, "--down", "base") == "base"
    assert tables(empty) == 0
    assert command(empty) == migrate.newest()
    assert tables(empty) == filled
    assert migrate.drift(empty) == []


def test_doing_it_again_changes_nothing(empty: str) -> None:
    assert command(empty) == command(empty) == migrate.newest()
    assert migrate.drift(empty) == []


def test_the_phases_together_reach_the_newest(empty: str) -> None:
    before = command(empty, "--phase", "pre")
    assert before.startswith("pre_")
    assert command(empty, "--phase", "post") == migrate.newest()
    assert migrate.drift(empty) == []


def test_two_at_once_are_safe(empty: str) -> None:
    env = environment(SLACKWATER_DATABASE_URL=empty)
    both = [start("migrate", env=env, stdout=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].decode().strip() for process in both]
    assert said == [migrate.newest()] * 2
    assert [process.returncode for process in both] == [0, 0]
    assert migrate.drift(empty) == []


@pytest.mark.parametrize(
    "arguments", [("--phase", "middle"), ("--phase", "pre", "--down", "base")], ids=["unknown phase", "phase and down"]
)
def test_what_cannot_be_meant_is_refused(empty: str, arguments: tuple[str, ...]) -> None:
    done = run("migrate", *arguments, env=environment(SLACKWATER_DATABASE_URL=empty))
    assert done.returncode == 2
    assert done.stdout == ""
    assert tables(empty) == 0


def test_a_database_that_is_not_there_is_one_line(empty: str) -> None:
    done = run("migrate", env=environment(SLACKWATER_DATABASE_URL="postgresql://slackwater@127.0.0.1:1/none"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("slackwater: the database does not answer")
    assert len(done.stderr.splitlines()) == 1


def test_it_works_from_an_installed_wheel(empty: str) -> None:
    """The wheel in an environment of its own, which borrows the dependencies of this one, run far from the sources."""
    pytest.importorskip("hatchling")
    with tempfile.TemporaryDirectory(prefix="slackwater-wheel-") as name:
        folder = Path(name)
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", name]
        built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        (wheel,) = folder.glob("*.whl")
        python = _install(wheel, folder / "env")
        env = {"SLACKWATER_DATABASE_URL": empty, "PATH": os.environ["PATH"]}

        def reached(*arguments: str) -> str:
            command = [str(python), "-m", "slackwater.cli.main", "migrate", *arguments]
            return subprocess.run(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True).stdout.strip()

        assert reached() == migrate.newest()
        assert migrate.drift(empty) == []
        assert reached("--down", "base") == "base"
        assert tables(empty) == 0


def _install(wheel: Path, place: Path) -> Path:
    """Unpack the wheel, which holds only Python, into a new environment; returns its interpreter."""
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "borrowed.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
    return place / "bin" / "python"
