"""A real PostgreSQL for the session, and a fresh migrated database for each test that wants one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from sqlalchemy.engine import make_url

from slackwater.embedded import Postgres
from slackwater.storage import migrate

os.environ.setdefault("OMP_NUM_THREADS", "1")
TEMPLATE = "template_slackwater"
# How long an example takes says how busy the machine is, and nothing of what it shows.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_machine")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """An embedded server of this session's own."""
    home = Path(tempfile.mkdtemp(prefix="slackwater-tests-", dir="/tmp" if os.geteuid() == 0 else None))
    home.chmod(0o755)
    with Postgres(home / "postgres", settings={"fsync": "off", "max_connections": "200"}) as server:
        yield server
    _remove(home)


@pytest.fixture(scope="session")
def server_dsn(postgres: Postgres) -> str:
    """The superuser's URL of the session's server, with a migrated template database on it."""
    _create(postgres.admin_dsn, TEMPLATE)
    migrate.upgrade(database_url(postgres.dsn, TEMPLATE))
    return postgres.admin_dsn


@pytest.fixture
def dsn(postgres: Postgres, server_dsn: str) -> Iterator[str]:
    """A fresh migrated database, reached as the login role that owns it and is no superuser."""
    name = f"test_{uuid4().hex[:12]}"
    _create(server_dsn, name, TEMPLATE)
    yield database_url(postgres.dsn, name)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def database_url(dsn: str, name: str) -> str:
    return make_url(dsn).set(database=name).render_as_string(hide_password=False)


def _create(admin_dsn: str, name: str, template: str = "template1") -> None:
    statement = sql.SQL("CREATE DATABASE {} OWNER slackwater TEMPLATE {}")
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
