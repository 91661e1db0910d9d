"""The API's transactions: each is scoped to a tenant (`tenant`), to the finding of a key (`gate`) or to administration (`admin`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection as AsyncSession
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from slackwater.storage.connections import NETWORK

Role = Literal["sw_gate", "sw_app", "sw_admin"]
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
            connect_args={"options": options, **NETWORK},
        )

    @asynccontextmanager
    async def tenant(self, tenant_id: int) -> AsyncIterator[AsyncSession]:
        """A transaction that sees and writes one tenant's rows only; commits at the end of the block."""
        async with self.engine.begin() as connection:
            await connection.execute(
                text("SELECT set_config('role', 'sw_app', true), set_config('app.tenant_id', :tenant, true)"),
                {"tenant": str(tenant_id)},
            )
            yield connection

    @asynccontextmanager
    async def gate(self) -> AsyncIterator[AsyncSession]:
        """A transaction that may look up keys, and write the figures of live traffic."""
        async with self._as("sw_gate") as connection:
            yield connection

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AsyncSession]:
        """A transaction that administers tenants, models, prices and instances."""
        async with self._as("sw_admin") as connection:
            yield connection

    @asynccontextmanager
    async def _as(self, role: Role) -> AsyncIterator[AsyncSession]:
        async with self.engine.begin() as connection:
            await connection.execute(text("SELECT set_config('role', :role, true)"), {"role": role})
            yield connection

    async def close(self) -> None:
        await self.engine.dispose()
