"""The connections of workers, duties and the webhook sender: psycopg, and `sw_worker` from the first statement on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8BinaryDumper

# For every connection to the database. A server whose host is gone, or a path that drops everything, ends no connection of its own accord:
# without these, whoever waits for its answer waits for hours. A query that takes long is no silence: the host still confirms it is there.
NETWORK: Final[Mapping[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
STATEMENT_TIMEOUT_SECONDS: Final = 30
# Nothing here thinks for long inside of a transaction: whoever does was stopped, and others wait for its locks.
IDLE_IN_TRANSACTION_SECONDS: Final = 10
FORGET_PLANS_SECONDS: Final = 1.0


def _options(*, asynchronous_commit: bool) -> str:
    settings = {
        "role": "sw_worker",
        "plan_cache_mode": "force_generic_plan",
        "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS}s",
        "synchronous_commit": "off" if asynchronous_commit else "on",
    }
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def connect(dsn: str) -> Connection[TupleRow]:
    """A connection for a duty: autocommit, so that transactions are where the code says so."""
    return psycopg.connect(
        dsn,
        autocommit=True,
        options=_options(asynchronous_commit=False),
        prepare_threshold=0,
        **NETWORK,
    )


async def connect_async(dsn: str, *, asynchronous_commit: bool = False) -> AsyncConnection[TupleRow]:
    """A connection for a worker or a sender: autocommit. Only claims, and what a worker says of itself, may commit asynchronously."""
    return await AsyncConnection.connect(
        dsn,
        autocommit=True,
        options=_options(asynchronous_commit=asynchronous_commit),
        prepare_threshold=0,
        **NETWORK,
    )


class Link:
    """A worker's connection, made at its first use and made anew once it is broken.

    Its plans are forgotten once a second: a generic plan made while a table was small stays bad for ever, and planning anew costs 0.5 ms.
    """

    def __init__(self, dsn: str, *, asynchronous_commit: bool = False) -> None:
        self._dsn = dsn
        self._asynchronous_commit = asynchronous_commit
        self._connection: AsyncConnection[TupleRow] | None = None
        self._making = asyncio.Lock()
        self._planned_at = 0.0

    async def get(self) -> AsyncConnection[TupleRow]:
        """The connection; raises psycopg.OperationalError while the server cannot be reached."""
        async with self._making:
            if self._connection is None or self._connection.closed:
                self._connection = await connect_async(self._dsn, asynchronous_commit=self._asynchronous_commit)
                self._connection.adapters.register_dumper(int, Int8BinaryDumper)
                self._planned_at = time.monotonic()
            if time.monotonic() - self._planned_at > FORGET_PLANS_SECONDS:
                self._planned_at = time.monotonic()
                await self._connection.execute("DISCARD PLANS")
            return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
