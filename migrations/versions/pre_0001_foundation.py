"""The whole of the first schema: tenancy, files, batches, work, results, events, instances, and row-level security.

Revision ID: pre_0001
Revises:
"""

from __future__ import annotations

from importlib.resources import files

from alembic import op
from psycopg import Connection

revision = "pre_0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None


def _run(name: str) -> None:
    driver = op.get_bind().connection.driver_connection
    assert isinstance(driver, Connection)
    driver.execute(files("migrations").joinpath("sql", name).read_bytes())


def upgrade() -> None:
    for part in (
        "roles",
        "tenancy",
        "files",
        "batches",
        "work",
        "events",
        "instances",
        "records",
        "security",
    ):
        _run(f"0001_{part}.sql")


def downgrade() -> None:
    _run("0001_down.sql")
