"""A batch says in which order its files have their lines, and what its events carry for the subscriber.

Revision ID: pre_0004
Revises: pre_0003
"""

from __future__ import annotations

from importlib.resources import files

from alembic import op
from psycopg import Connection

revision = "pre_0004"
down_revision: str | None = "pre_0003"
branch_labels: str | None = None
depends_on: str | None = None


def _run(name: str) -> None:
    driver = op.get_bind().connection.driver_connection
    assert isinstance(driver, Connection)
    driver.execute(files("migrations").joinpath("sql", name).read_bytes())


def upgrade() -> None:
    _run("0004_output_order.sql")


def downgrade() -> None:
    _run("0004_down.sql")
