"""Creates are recognised when they are sent again; a batch says which one it retries, and may change its lane.

Revision ID: pre_0002
Revises: pre_0001
"""

from __future__ import annotations

from importlib.resources import files

from alembic import op
from psycopg import Connection

revision = "pre_0002"
down_revision: str | None = "pre_0001"
branch_labels: str | None = None
depends_on: str | None = None


def _run(name: str) -> None:
    driver = op.get_bind().connection.driver_connection
    assert isinstance(driver, Connection)
    driver.execute(files("migrations").joinpath("sql", name).read_bytes())


def upgrade() -> None:
    _run("0002_requests_once.sql")


def downgrade() -> None:
    _run("0002_down.sql")
