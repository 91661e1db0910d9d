"""Requests, what is left to run of them, who runs it, and what came out."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, Index, PrimaryKeyConstraint, SmallInteger, Table, Uuid, text

from slackwater.storage.tables.base import (
    METADATA,
    big,
    flag,
    identity,
    instant,
    integer,
    moment,
    raw,
    small,
    words,
)

request = Table(
    "request",
    METADATA,
    big("tenant_id"),
    big("batch_id"),
    integer("position"),
    integer("line"),
    integer("chunk"),
    integer("start"),
    integer("length"),
    integer("model_id"),
    integer("est_tokens"),
    words("custom_id"),
    PrimaryKeyConstraint("tenant_id", "batch_id", "position"),
    postgresql_partition_by="RANGE (batch_id)",
)

result = Table(
    "result",
    METADATA,
    big("tenant_id"),
    big("batch_id"),
    integer("line"),
    small("outcome"),
    small("http", nullable=True),
    integer("prompt_tokens"),
    integer("completion_tokens"),
    integer("cached_tokens", nullable=True),
    small("attempt"),
    integer("instance_id", nullable=True),
    instant("at"),
    raw("body"),
    PrimaryKeyConstraint("tenant_id", "batch_id", "line"),
    postgresql_partition_by="RANGE (batch_id)",
)

segment = Table(
    "segment",
    METADATA,
    identity(primary_key=True),
    big("tenant_id"),
    big("batch_id"),
    integer("model_id"),
    integer("rank"),
    integer("first"),
    Column("n", SmallInteger, CheckConstraint("n BETWEEN 1 AND 64"), nullable=False),
    small("state", server_default="0"),
    small("rescues", server_default="0"),
    small("deaths", server_default="0"),
    small("attempts", server_default="0"),
    small("deferrals", server_default="0"),
    moment("run_at"),
    Index("segment_ready", "model_id", "batch_id", "rank", postgresql_where=text("state = 0")),
    Index("segment_delayed", "run_at", postgresql_where=text("state = 3")),
    Index("segment_by_batch", "batch_id"),
)

lease = Table(
    "lease",
    METADATA,
    Column("token", Uuid, primary_key=True),
    integer("worker_id"),
    big("tenant_id"),
    big("batch_id"),
    integer("model_id"),
    integer("first"),
    small("n"),
    small("rescues"),
    small("deaths"),
    small("attempts"),
    small("deferrals"),
    flag("is_alone", "false"),
    instant("expires_at", default=False),
    Column("called_at", DateTime(timezone=True)),
    Index("lease_by_batch", "batch_id"),
)

__all__ = ["lease", "request", "result", "segment"]
