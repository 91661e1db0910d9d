"""A batch may stand for one background response, which is gone some time after its end.

Revision ID: pre_0006
Revises: pre_0005
"""

from __future__ import annotations

from importlib.resources import files

from alembic import op
from psycopg import Connection

revision = "pre_0006"
down_revision: str | None = "pre_0005"
branch_labels: str | None = None
depends_on: str | None = None


def _run(name: str) -> None:
    driver = op.get_bind().connection.driver_connection
    assert isinstance(driver, Connection)
    driver.execute(files("migrations").joinpath("sql", name).read_bytes())


def upgrade() -> None:
    _run("0006_responses.sql")


def downgrade() -> None:
    _run("0006_down.sql")
