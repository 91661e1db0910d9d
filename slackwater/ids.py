"""Public ids: a prefix that names the kind and a time-ordered UUID. Internal ids are bigints of the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import uuid_utils

EPOCH: Final = datetime(2025, 1, 1, tzinfo=UTC)
SEQUENCE_BITS: Final = 22
WEEK: Final = timedelta(days=7)


def new(prefix: str) -> str:
    """`prefix` plus 32 hex digits, for example `batch_0199…` or `file-0199…`; ids made later sort later."""
    return prefix + uuid_utils.uuid7().hex


def week_of(batch_id: int) -> int:
    """The number of the week, counted from `EPOCH`, in which a batch id was made: it names the partition."""
    return (batch_id >> SEQUENCE_BITS) // (WEEK // timedelta(milliseconds=1))


def first_of_week(week: int) -> int:
    """The lowest batch id that belongs to `week`: the partition's lower bound."""
    return (week * (WEEK // timedelta(milliseconds=1))) << SEQUENCE_BITS


def at(moment: datetime) -> int:
    """The lowest batch id that could be made at `moment`."""
    return ((moment - EPOCH) // timedelta(milliseconds=1)) << SEQUENCE_BITS
