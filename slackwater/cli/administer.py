"""One administrative transaction, for the commands that change tenants, keys, models, prices and instances."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from slackwater.cli.place import local_settings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")


def administer(act: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    """Run `act` as `sw_admin` in the database of this place and commit; what it raises rolls back."""
    return as_admin(local_settings().dsn, act)


def as_admin(dsn: str, act: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    """As `administer`, in the database of a URL."""
    from slackwater.storage.database import Database

    async def run() -> T:
        database = Database(dsn, pool_size=1)
        try:
            async with database.admin() as connection:
                return await act(connection)
        finally:
            await database.close()

    return asyncio.run(run())
