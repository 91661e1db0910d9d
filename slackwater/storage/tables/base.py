"""What the table modules share: one metadata, and short spellings of the column kinds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Integer,
    MetaData,
    SmallInteger,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import BYTEA, JSON

METADATA = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "ck": "%(table_name)s_%(column_0_name)s_check",
    }
)
NOW = text("now()")


def big(name: str, *args: Any, **kw: Any) -> Column[int]:
    return Column(name, BigInteger, *args, **{"nullable": False} | kw)


def integer(name: str, *args: Any, **kw: Any) -> Column[int]:
    return Column(name, Integer, *args, **{"nullable": False} | kw)


def small(name: str, **kw: Any) -> Column[int]:
    return Column(name, SmallInteger, **{"nullable": False} | kw)


def words(name: str, *args: Any, **kw: Any) -> Column[str]:
    return Column(name, Text, *args, **{"nullable": False} | kw)


def flag(name: str, default: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=text(default))


def raw(name: str, **kw: Any) -> Column[bytes]:
    return Column(name, BYTEA, **{"nullable": False} | kw)


def document(name: str, **kw: Any) -> Column[Any]:
    return Column(name, JSON(none_as_null=True), **{"nullable": True} | kw)


def moment(name: str) -> Column[datetime | None]:
    """An instant that may not have come yet."""
    return Column(name, DateTime(timezone=True), nullable=True)


def instant(name: str, *, default: bool = True) -> Column[datetime]:
    """An instant that is always known; the database's clock sets it unless `default` is False."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=NOW if default else None)


def identity(name: str = "id", **kw: Any) -> Column[int]:
    return Column(name, BigInteger, Identity(always=True), nullable=False, **kw)


def small_identity(name: str = "id") -> Column[int]:
    return Column(name, Integer, Identity(always=True), primary_key=True)


def count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def total(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))
