"""Wake-ups through PostgreSQL: hints only. Whoever misses one looks again at its next interval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from psycopg import AsyncConnection, Error

from slackwater.storage.connections import NETWORK

CHANNEL: Final = "slackwater"
AGAIN_SECONDS: Final = 1.0


async def listen(dsn: str, heard: Callable[[str | None], None], stopping: asyncio.Event) -> None:
    """Call `heard` with each notice's payload until `stopping` is set, and with None after each (re)connect: something may have been missed."""
    while not stopping.is_set():
        try:
            async with await AsyncConnection.connect(dsn, autocommit=True, **NETWORK) as connection:
                await connection.execute(f"LISTEN {CHANNEL}".encode())
                heard(None)
                while not stopping.is_set():
                    async for notice in connection.notifies(timeout=0.5):
                        heard(notice.payload)
        except Error:
            await _pause(stopping)


async def _pause(stopping: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), AGAIN_SECONDS)
    except TimeoutError:
        return
