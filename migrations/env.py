"""Alembic's entry: the caller hands over a connection; there is no offline mode."""

from __future__ import annotations

from alembic import context

from slackwater.storage.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
