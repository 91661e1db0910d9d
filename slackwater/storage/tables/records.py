"""What is kept when the rest is purged: usage, failed runs, who did what; and for a while, which creates were sent."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, PrimaryKeyConstraint, Table, UniqueConstraint, text

from slackwater.storage.tables.base import (
    METADATA,
    big,
    count,
    document,
    identity,
    instant,
    integer,
    moment,
    raw,
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

idempotency = Table(
    "idempotency",
    METADATA,
    big("tenant_id", ForeignKey("tenant.id")),
    identity(),
    words("route"),
    big("api_key_id"),
    words("key", nullable=True),
    raw("hash"),
    words("object_id"),
    instant("created_at"),
    moment("replied_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "route", "key"),
    Index(
        "idempotency_unreplied",
        "tenant_id",
        "api_key_id",
        "route",
        "hash",
        postgresql_where=text("key IS NULL AND replied_at IS NULL"),
    ),
    Index("idempotency_by_time", "created_at"),
)

__all__ = ["attempt", "audit", "idempotency", "ledger"]
