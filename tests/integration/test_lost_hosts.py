"""A database whose host vanishes says no goodbye: every connection we make gives it up by itself."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import psycopg
import pytest

from slackwater.storage import notices
from slackwater.storage.connections import connect, connect_async
from slackwater.storage.database import Database

LEVEL = socket.IPPROTO_TCP


def patience_of(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> tuple[int, ...]:
    """Milliseconds for what is not confirmed; seconds of silence before a probe and between probes, and how many of these."""
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        names = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        return tuple(ours.getsockopt(LEVEL, name) for name in names)


def test_duties_give_a_lost_host_up(dsn: str) -> None:
    with connect(dsn) as connection:
        assert patience_of(connection) == (10_000, 5, 2, 3)


async def test_workers_give_a_lost_host_up(dsn: str) -> None:
    async with await connect_async(dsn) as connection:
        assert patience_of(connection) == (10_000, 5, 2, 3)


async def test_the_api_gives_a_lost_host_up(dsn: str) -> None:
    database = Database(dsn, pool_size=1)
    async with database.engine.connect() as connection:
        raw = await connection.get_raw_connection()
        assert raw.driver_connection is not None
        assert patience_of(raw.driver_connection) == (10_000, 5, 2, 3)
    await database.close()


async def test_listeners_give_a_lost_host_up(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[psycopg.AsyncConnection[Any]] = []
    found: list[tuple[int, ...]] = []
    stopping = asyncio.Event()

    class Seen:
        @staticmethod
        async def connect(*args: Any, **options: Any) -> psycopg.AsyncConnection[Any]:
            made.append(await psycopg.AsyncConnection.connect(*args, **options))
            return made[-1]

    def heard(_: str | None) -> None:
        found.append(patience_of(made[-1]))
        stopping.set()

    monkeypatch.setattr(notices, "AsyncConnection", Seen)
    await notices.listen(dsn, heard, stopping)

    assert found == [(10_000, 5, 2, 3)]
