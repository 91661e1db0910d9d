"""Model servers, the workers beside them, what they may use, and what was decided."""

from __future__ import annotations

from sqlalchemy import (
    REAL,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from slackwater.storage.tables.base import (
    METADATA,
    count,
    document,
    instant,
    integer,
    moment,
    raw,
    small_identity,
    words,
)

instance = Table(
    "instance",
    METADATA,
    small_identity(),
    words("public_id", unique=True),
    words("name", unique=True),
    words("engine", CheckConstraint("engine IN ('openai_http', 'local', 'echo')")),
    words("url", nullable=True),
    raw("api_key", nullable=True),
    Column("gpus", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    integer("max_slots", CheckConstraint("max_slots > 0"), server_default="16"),
    words(
        "mode",
        CheckConstraint("mode IN ('strict', 'balanced', 'deadline')"),
        server_default=text("'balanced'::text"),
    ),
    document("options", nullable=False, server_default=text("'{}'::json")),
    instant("created_at"),
    moment("disabled_at"),
)

instance_model = Table(
    "instance_model",
    METADATA,
    integer("instance_id", ForeignKey("instance.id", ondelete="CASCADE")),
    integer("model_id", ForeignKey("model.id")),
    words("upstream_name"),
    moment("paused_until"),
    words("paused_reason", nullable=True),
    PrimaryKeyConstraint("instance_id", "model_id"),
)

worker = Table(
    "worker",
    METADATA,
    small_identity(),
    integer("instance_id", ForeignKey("instance.id", ondelete="CASCADE")),
    words("host"),
    integer("pid"),
    instant("started_at"),
    instant("heartbeat_at"),
    moment("stopped_at"),
)

grant = Table(
    "grant",
    METADATA,
    integer("worker_id", primary_key=True, autoincrement=False),
    integer("instance_id"),
    integer("asked"),
    integer("slots"),
    integer("in_flight"),
    instant("at"),
    prefixes=["UNLOGGED"],
)

gateway = Table(
    "gateway",
    METADATA,
    words("id", primary_key=True),
    words("host"),
    integer("pid"),
    instant("started_at"),
    instant("heartbeat_at"),
)

live_load = Table(
    "live_load",
    METADATA,
    integer("instance_id"),
    words("gateway_id"),
    integer("running"),
    integer("waiting"),
    Column("ttft_p99_seconds", REAL),
    Column("itl_p99_seconds", REAL),
    instant("at"),
    PrimaryKeyConstraint("instance_id", "gateway_id"),
    prefixes=["UNLOGGED"],
)

decision = Table(
    "decision",
    METADATA,
    integer("worker_id"),
    integer("instance_id"),
    instant("at"),
    Column("admitted", Boolean, nullable=False),
    words("reason", nullable=True),
    count("slots"),
    count("prompt_tokens"),
    document("details", nullable=False, server_default=text("'{}'::json")),
    PrimaryKeyConstraint("worker_id", "at"),
    Index("decision_by_instance", "instance_id", "at"),
    prefixes=["UNLOGGED"],
)

__all__ = ["decision", "gateway", "grant", "instance", "instance_model", "live_load", "worker"]
