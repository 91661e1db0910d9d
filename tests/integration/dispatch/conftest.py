"""A tenant with endpoints in a real database, a real receiver, and senders that run until the test ends."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from pydantic import SecretStr

from scheduler.dispatch.claims import Limits
from scheduler.dispatch.loop import run
from slackwater import outbox
from slackwater.sealing import Sealer, sealer_from
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from slackwater.storage.database import Database
from slackwater.webhooks import endpoints
from tests.integration.dispatch.receiver import Receiver, serving

MASTER_KEY = base64.b64encode(bytes(range(32))).decode()


def settings_for(dsn: str, **more: Any) -> Settings:
    plain: dict[str, Any] = {
        "database_url": SecretStr(dsn),
        "master_key": SecretStr(MASTER_KEY),
        "webhook_allow": ("127.0.0.1/32",),
        "webhook_allow_http": True,
        "webhook_timeout_seconds": 5.0,
        "grace_seconds": 0.5,
    }
    return Settings(**plain | more)


@dataclass
class Place:
    """One tenant of one database, seen by its owner (`rows`), the API (`database`) and the duties (`finish`)."""

    dsn: str
    settings: Settings
    database: Database
    rows: psycopg.Connection[TupleRow]
    tenant_id: int
    project_id: int
    secrets: dict[str, str] = field(default_factory=dict)
    _batch: int = 0

    @property
    def sealer(self) -> Sealer:
        return sealer_from(self.settings)

    async def subscribe(
        self, url: str, *, batch_id: int | None = None, event_types: tuple[str, ...] = outbox.EVENT_TYPES
    ) -> str:
        async with self.database.tenant(self.tenant_id) as connection:
            created = await endpoints.create(
                connection,
                sealer=self.sealer,
                settings=self.settings,
                tenant_id=self.tenant_id,
                project_id=self.project_id,
                url=url,
                event_types=event_types,
                batch_id=batch_id,
            )
        self.secrets[created.public_id] = created.signing_secret
        return created.public_id

    def finish(self, n: int = 1, type_: str = "batch.completed") -> list[int]:
        """Publish the end of `n` new batches, as a duty does. Returns their ids."""
        batches = list(range(self._batch + 1, self._batch + n + 1))
        self._batch += n
        with connect(self.dsn) as connection, connection.transaction():
            for batch_id in batches:
                outbox.publish(connection, self.tenant_id, batch_id, type_, {"id": f"batch_{batch_id}"})
        return batches

    def fetch(self, query: str, **values: Any) -> list[TupleRow]:
        return self.rows.execute(query, values).fetchall()

    def make_due(self) -> None:
        """Travel to the time when everything that waits is due, leases included."""
        self.rows.execute("UPDATE delivery SET next_at = now() WHERE state = 0")
        self.rows.execute("SELECT pg_notify('slackwater', 'dispatch')")

    async def until(self, query: str, expected: object, *, seconds: float = 20.0) -> None:
        """Wait for a fact: the single value of `query`."""
        ends, found = time.monotonic() + seconds, None
        while time.monotonic() < ends:
            found = self.fetch(query)[0][0]
            if found == expected:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{query}: {found!r}, not {expected!r}")

    @asynccontextmanager
    async def dispatching(self, limits: Limits | None = None) -> AsyncIterator[None]:
        """A sender runs inside the block."""
        stopping = asyncio.Event()
        sender = asyncio.create_task(run(self.settings, stopping, limits))
        try:
            yield
        finally:
            stopping.set()
            await sender


@pytest.fixture
def settings(dsn: str) -> Settings:
    return settings_for(dsn)


@pytest.fixture
async def place(dsn: str, settings: Settings) -> AsyncIterator[Place]:
    database = Database(dsn, pool_size=2)
    with psycopg.connect(dsn, autocommit=True) as rows:
        yield Place(dsn, settings, database, rows, *_tenant(rows, "one"))
    await database.close()


@pytest.fixture
def another_tenant(place: Place) -> Callable[[], Place]:
    def make() -> Place:
        ids = _tenant(place.rows, "two")
        return Place(place.dsn, place.settings, place.database, place.rows, *ids)

    return make


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serving() as found:
        yield found


def _tenant(rows: psycopg.Connection[TupleRow], name: str) -> tuple[int, int]:
    query = """
    WITH t AS (INSERT INTO tenant (public_id, name) VALUES ('ten_' || %(name)s, %(name)s) RETURNING id)
    INSERT INTO project (tenant_id, public_id, name) SELECT id, 'proj_' || %(name)s, 'main' FROM t RETURNING tenant_id, id
    """
    row = rows.execute(query, {"name": name}).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
