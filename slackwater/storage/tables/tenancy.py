"""Who, what may be used, and what it costs."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import ARRAY

from slackwater.storage.tables.base import (
    METADATA,
    big,
    flag,
    identity,
    instant,
    integer,
    moment,
    raw,
    small_identity,
    words,
)

tenant = Table(
    "tenant",
    METADATA,
    identity(primary_key=True),
    words("public_id", unique=True),
    words("name", unique=True),
    integer("weight", CheckConstraint("weight > 0"), server_default="1"),
    instant("created_at"),
    moment("suspended_at"),
)

project = Table(
    "project",
    METADATA,
    big("tenant_id", ForeignKey("tenant.id")),
    identity(),
    words("public_id"),
    words("name"),
    instant("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "public_id"),
    UniqueConstraint("tenant_id", "name"),
)

api_key = Table(
    "api_key",
    METADATA,
    big("tenant_id"),
    identity(),
    big("project_id"),
    words("public_id", unique=True),
    raw("digest"),
    words("last4"),
    words("name"),
    Column("scopes", ARRAY(Text), nullable=False),
    instant("created_at"),
    moment("not_before"),
    moment("expires_at"),
    moment("revoked_at"),
    moment("last_used_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    ForeignKeyConstraint(["tenant_id", "project_id"], ["project.tenant_id", "project.id"]),
)

model = Table(
    "model",
    METADATA,
    small_identity(),
    words("name", unique=True),
    flag("is_open", "true"),
    instant("created_at"),
)

model_access = Table(
    "model_access",
    METADATA,
    big("tenant_id", ForeignKey("tenant.id")),
    integer("model_id", ForeignKey("model.id")),
    PrimaryKeyConstraint("tenant_id", "model_id"),
)

price = Table(
    "price",
    METADATA,
    identity(primary_key=True),
    integer("model_id", ForeignKey("model.id")),
    big("input_picodollars", CheckConstraint("input_picodollars >= 0")),
    big("cached_picodollars", CheckConstraint("cached_picodollars >= 0")),
    big("output_picodollars", CheckConstraint("output_picodollars >= 0")),
    instant("valid_from"),
    UniqueConstraint("model_id", "valid_from"),
)

__all__ = ["api_key", "model", "model_access", "price", "project", "tenant"]
