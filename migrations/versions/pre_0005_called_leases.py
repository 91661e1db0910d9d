"""Leases that were called before they are taken back.

Revision ID: pre_0005
Revises: pre_0004
"""

from __future__ import annotations

from importlib.resources import files

from alembic import op
from psycopg import Connection

revision = "pre_0005"
down_revision: str | None = "pre_0004"
branch_labels: str | None = None
depends_on: str | None = None


def _run(name: str) -> None:
    driver = op.get_bind().connection.driver_connection
    assert isinstance(driver, Connection)
    driver.execute(files("migrations").joinpath("sql", name).read_bytes())


def upgrade() -> None:
    _run("0005_called_leases.sql")


def downgrade() -> None:
    _run("0005_down.sql")
