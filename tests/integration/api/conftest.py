"""The API over a real uvicorn on a free port, with two tenants, and the real client."""

from __future__ import annotations

import base64
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from psycopg import Connection
from psycopg.rows import TupleRow
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncConnection

from api.server import listener_of, server_of
from slackwater.cli.administer import as_admin
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from slackwater.telemetry import configure_logs
from slackwater.tenancy import keys, models, tenants
from slackwater.tenancy.keys import ADMIN

MASTER_KEY = base64.b64encode(bytes(range(32))).decode()
MODEL = "tiny-chat"


@dataclass
class Api:
    """A running API and the keys of its tenants."""

    url: str
    dsn: str
    key: str = ""
    other_key: str = ""
    admin_key: str = ""
    _open: list[Any] = field(default_factory=list)

    def client(self, key: str | None = None, **options: Any) -> OpenAI:
        client = OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key, **options)
        self._open.append(client)
        return client

    def http(self, key: str | None = None, **options: Any) -> httpx2.Client:
        headers = {"authorization": f"Bearer {key or self.key}"} if key != "" else {}
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=60, **options)
        self._open.append(client)
        return client

    def close(self) -> None:
        for client in self._open:
            client.close()

    def admin(self, act: Callable[[AsyncConnection], Any]) -> Any:
        return as_admin(self.dsn, act)


@pytest.fixture
def api_settings(dsn: str) -> Settings:
    return Settings(database_url=SecretStr(dsn), master_key=SecretStr(MASTER_KEY), port=0, upload_idle_seconds=2.0)


@pytest.fixture
def api(api_settings: Settings) -> Iterator[Api]:
    with running(api_settings) as url_of:
        api = Api(url_of, api_settings.dsn)
        api.admin(lambda connection: _people(connection, api))
        yield api
        api.close()


async def _people(connection: AsyncConnection, api: Api) -> None:
    for name in ("alpha", "beta"):
        await tenants.create(connection, name)
    await models.ensure(connection, MODEL)
    api.key = (await keys.create(connection, "alpha")).text
    api.other_key = (await keys.create(connection, "beta")).text
    api.admin_key = (await keys.create(connection, "alpha", scopes=[ADMIN])).text


@pytest.fixture(autouse=True, scope="session")
def _logs() -> None:
    configure_logs()


@contextmanager
def running(settings: Settings) -> Iterator[str]:
    """A server in a thread of its own; its address inside of the block."""
    told: queue.Queue[str] = queue.Queue()
    listener = listener_of(settings)
    server = server_of(settings, told.put)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield told.get(timeout=60)
    finally:
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def worker(dsn: str) -> Iterator[Connection[TupleRow]]:
    """What workers and duties write with."""
    with connect(dsn) as connection:
        yield connection
