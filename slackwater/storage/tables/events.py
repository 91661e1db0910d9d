"""The outbox: events, where they go, and every attempt to bring them there."""

from __future__ import annotations

from sqlalchemy import (
    REAL,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from slackwater.storage.tables.base import METADATA, big, identity, instant, moment, raw, small, words

event = Table(
    "event",
    METADATA,
    big("tenant_id", ForeignKey("tenant.id")),
    identity(),
    words("public_id"),
    words("type"),
    big("batch_id", nullable=True),
    raw("body"),
    instant("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "public_id"),
    UniqueConstraint("tenant_id", "batch_id", "type"),
)

endpoint = Table(
    "endpoint",
    METADATA,
    big("tenant_id"),
    identity(),
    big("project_id"),
    words("public_id"),
    big("batch_id", nullable=True),
    words("name"),
    raw("url"),
    Column("event_types", ARRAY(Text), nullable=False),
    instant("created_at"),
    instant("updated_at"),
    moment("disabled_at"),
    words("disabled_reason", nullable=True),
    moment("deleted_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "public_id"),
    ForeignKeyConstraint(["tenant_id", "project_id"], ["project.tenant_id", "project.id"]),
)

secret = Table(
    "secret",
    METADATA,
    big("tenant_id"),
    identity(),
    big("endpoint_id"),
    raw("sealed"),
    words("hint"),
    instant("created_at"),
    moment("expires_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    ForeignKeyConstraint(["tenant_id", "endpoint_id"], ["endpoint.tenant_id", "endpoint.id"]),
    Index("secret_by_endpoint", "tenant_id", "endpoint_id"),
)

delivery = Table(
    "delivery",
    METADATA,
    big("tenant_id"),
    identity(),
    words("public_id"),
    big("event_id"),
    big("endpoint_id"),
    small("state", server_default="0"),
    small("attempts", server_default="0"),
    instant("next_at"),
    Column("token", Uuid, nullable=True),
    moment("delivered_at"),
    instant("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "public_id"),
    UniqueConstraint("tenant_id", "event_id", "endpoint_id"),
    ForeignKeyConstraint(["tenant_id", "event_id"], ["event.tenant_id", "event.id"]),
    ForeignKeyConstraint(["tenant_id", "endpoint_id"], ["endpoint.tenant_id", "endpoint.id"]),
    Index("delivery_due", "tenant_id", "endpoint_id", "next_at", "id", postgresql_where=text("state = 0")),
    Index(
        "delivery_in_flight",
        "tenant_id",
        "endpoint_id",
        "next_at",
        postgresql_where=text("state = 0 AND token IS NOT NULL"),
    ),
)

delivery_attempt = Table(
    "delivery_attempt",
    METADATA,
    big("tenant_id"),
    big("delivery_id"),
    small("n"),
    instant("at"),
    Column("seconds", REAL, nullable=False),
    small("http", nullable=True),
    words("error", nullable=True),
    raw("reply", nullable=True),
    PrimaryKeyConstraint("tenant_id", "delivery_id", "n"),
    ForeignKeyConstraint(["tenant_id", "delivery_id"], ["delivery.tenant_id", "delivery.id"]),
)

__all__ = ["delivery", "delivery_attempt", "endpoint", "event", "secret"]
