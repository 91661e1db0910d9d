"""Files that come in parts."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from slackwater.storage.tables.base import METADATA, big, identity, instant, integer, raw, small, words

upload = Table(
    "upload",
    METADATA,
    big("tenant_id", ForeignKey("tenant.id")),
    identity(),
    big("project_id"),
    words("public_id"),
    words("filename"),
    words("purpose"),
    big("bytes"),
    integer("life_seconds", nullable=True),
    small("state", server_default="0"),
    big("file_id", nullable=True),
    raw("parts_hash", nullable=True),
    instant("created_at"),
    Column("expires_at", DateTime(timezone=True), nullable=False, server_default=text("now() + interval '1 hour'")),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "public_id"),
    ForeignKeyConstraint(["tenant_id", "project_id"], ["project.tenant_id", "project.id"]),
)

upload_part = Table(
    "upload_part",
    METADATA,
    big("tenant_id"),
    big("upload_id"),
    big("file_id"),
    words("public_id"),
    big("bytes"),
    instant("created_at"),
    PrimaryKeyConstraint("tenant_id", "upload_id", "file_id"),
    ForeignKeyConstraint(["tenant_id", "upload_id"], ["upload.tenant_id", "upload.id"], ondelete="CASCADE"),
)

__all__ = ["upload", "upload_part"]
