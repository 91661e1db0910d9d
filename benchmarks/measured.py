"""Readings for benchmarks: a backend's CPU, the server's WAL, and the middle and tail of what was timed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time that these processes of this machine have used so far; exact to 10 ms each."""
    return sum(_ticks(pid) for pid in pids) * TICK_SECONDS


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wal_position(connection: Connection[Any]) -> int:
    """Bytes of WAL written since the cluster was made."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 99th percentile, in the unit of the values."""

    p50: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        ordered = sorted(values)
        return cls(ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])
