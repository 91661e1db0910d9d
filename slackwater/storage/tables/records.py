"""What is kept when the rest is purged: usage, failed runs, who did what."""

from __future__ import annotations

from sqlalchemy import Index, Table

from slackwater.storage.tables.base import (
    METADATA,
    big,
    count,
    document,
    identity,
    instant,
    integer,
    small,
    words,
)

ledger = Table(
    "ledger",
    METADATA,
    identity(primary_key=True),
    instant("at"),
    big("tenant_id"),
    big("project_id"),
    big("api_key_id", nullable=True),
    words("flow"),
    integer("model_id"),
    big("batch_id", nullable=True),
    integer("requests"),
    big("prompt_tokens"),
    big("completion_tokens"),
    big("cached_tokens"),
    big("cost_picodollars"),
    Index("ledger_by_time", "at"),
    Index("ledger_by_batch", "tenant_id", "batch_id"),
)

attempt = Table(
    "attempt",
    METADATA,
    identity(primary_key=True),
    big("tenant_id"),
    big("batch_id"),
    integer("line"),
    instant("at"),
    integer("worker_id", nullable=True),
    integer("instance_id", nullable=True),
    words("why"),
    small("http", nullable=True),
    count("wasted_tokens"),
    Index("attempt_by_line", "tenant_id", "batch_id", "line"),
)

audit = Table(
    "audit",
    METADATA,
    identity(primary_key=True),
    big("tenant_id", nullable=True),
    instant("at"),
    words("actor"),
    words("action"),
    words("object"),
    document("details", nullable=False, server_default="{}"),
    Index("audit_by_tenant", "tenant_id", "at"),
)

__all__ = ["attempt", "audit", "ledger"]
