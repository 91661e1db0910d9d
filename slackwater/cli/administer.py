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
    """Run `act` as `sw_admin` and commit; what it raises rolls back."""
    from slackwater.storage.database import Database

    async def run() -> T:
        database = Database(local_settings().dsn, pool_size=1)
        try:
            async with database.admin() as connection:
                return await act(connection)
        finally:
            await database.close()

    return asyncio.run(run())
