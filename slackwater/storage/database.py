"""Connections and the role each part of the product takes on them.

The API asks for one transaction at a time, scoped to a tenant (`tenant`), to the finding of a key (`gate`) or to administration
(`admin`). Workers, duties and the webhook sender hold psycopg connections that are `slackwater_worker` from the first statement on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8BinaryDumper
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection as AsyncSession
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

Role = Literal["slackwater_gate", "slackwater_app", "slackwater_admin"]
STATEMENT_TIMEOUT_SECONDS: Final = 30


class Database:
    """A pool of connections for the API. Every transaction takes its role and its tenant, and loses both at its end."""

    def __init__(self, dsn: str, *, pool_size: int = 10) -> None:
        url = make_url(dsn).set(drivername="postgresql+psycopg")
        options = (
            f"-c statement_timeout={STATEMENT_TIMEOUT_SECONDS * 1000} -c idle_in_transaction_session_timeout=60000"
        )
        self.engine: AsyncEngine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"options": options, "connect_timeout": 5},
        )

    @asynccontextmanager
    async def tenant(self, tenant_id: int) -> AsyncIterator[AsyncSession]:
        """A transaction that sees and writes one tenant's rows only; commits at the end of the block."""
        async with self.engine.begin() as connection:
            await connection.execute(
                text("SELECT set_config('role', 'slackwater_app', true), set_config('app.tenant_id', :tenant, true)"),
                {"tenant": str(tenant_id)},
            )
            yield connection

    @asynccontextmanager
    async def gate(self) -> AsyncIterator[AsyncSession]:
        """A transaction that may look up keys, and write the figures of live traffic."""
        async with self._as("slackwater_gate") as connection:
            yield connection

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AsyncSession]:
        """A transaction that administers tenants, models, prices and instances."""
        async with self._as("slackwater_admin") as connection:
            yield connection

    @asynccontextmanager
    async def _as(self, role: Role) -> AsyncIterator[AsyncSession]:
        async with self.engine.begin() as connection:
            await connection.execute(text("SELECT set_config('role', :role, true)"), {"role": role})
            yield connection

    async def close(self) -> None:
        await self.engine.dispose()


def _options(*, asynchronous_commit: bool) -> str:
    settings = {
        "role": "slackwater_worker",
        "plan_cache_mode": "force_generic_plan",
        "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
        "idle_in_transaction_session_timeout": "60s",
        "synchronous_commit": "off" if asynchronous_commit else "on",
    }
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def connect(dsn: str) -> Connection[TupleRow]:
    """A connection for a duty: autocommit, so that transactions are where the code says so."""
    return psycopg.connect(
        dsn,
        autocommit=True,
        options=_options(asynchronous_commit=False),
        connect_timeout=5,
        prepare_threshold=0,
    )


async def connect_async(dsn: str, *, asynchronous_commit: bool = False) -> AsyncConnection[TupleRow]:
    """A connection for a worker or a sender: autocommit. Only claims may commit asynchronously."""
    return await AsyncConnection.connect(
        dsn,
        autocommit=True,
        options=_options(asynchronous_commit=asynchronous_commit),
        connect_timeout=5,
        prepare_threshold=0,
    )


class Link:
    """A worker's connection, made at its first use and made anew once it is broken. One caller at a time."""

    def __init__(self, dsn: str, *, asynchronous_commit: bool = False) -> None:
        self._dsn = dsn
        self._asynchronous_commit = asynchronous_commit
        self._connection: AsyncConnection[TupleRow] | None = None

    async def get(self) -> AsyncConnection[TupleRow]:
        """The connection; raises psycopg.OperationalError while the server cannot be reached."""
        if self._connection is None or self._connection.closed:
            self._connection = await connect_async(self._dsn, asynchronous_commit=self._asynchronous_commit)
            self._connection.adapters.register_dumper(int, Int8BinaryDumper)
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
