"""Which model server this worker stands beside, and the engine that reaches it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import dict_row

from slackwater.errors import Misconfigured
from slackwater.sealing import sealer_from
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from workers.engines.base import Engine
from workers.engines.echo import EchoEngine
from workers.engines.openai_http import UpstreamEngine

FIND: Final = "SELECT * FROM instance WHERE name = %s AND disabled_at IS NULL"
REGISTER: Final = "INSERT INTO worker (instance_id, host, pid) VALUES (%s, %s, %s) RETURNING id"


@dataclass(frozen=True, slots=True)
class Instance:
    """A row of `instance`, as far as a worker needs it, and the id this worker got."""

    id: int
    name: str
    engine: str
    url: str | None
    api_key: bytes | None
    public_id: str
    gpus: tuple[str, ...]
    max_slots: int
    mode: str
    options: dict[str, Any]
    worker_id: int


def register(settings: Settings, name: str) -> Instance:
    """Find the instance and register this process as its worker.

    Raises:
        Misconfigured: no enabled instance has this name.
    """
    with connect(settings.dsn) as connection:
        row = connection.cursor(row_factory=dict_row).execute(FIND, (name,)).fetchone()
        if row is None:
            raise Misconfigured(f"no enabled instance is named {name!r} (see `slackwater instances list`)")
        worker = connection.execute(REGISTER, (row["id"], socket.gethostname(), os.getpid())).fetchone()
    assert worker is not None
    names = ("id", "name", "engine", "url", "api_key", "public_id", "max_slots", "mode", "options")
    return Instance(**{n: row[n] for n in names}, gpus=tuple(row["gpus"]), worker_id=worker[0])


async def open_engine(instance: Instance, settings: Settings) -> Engine:
    """The engine of an instance. The local one loads its weights here, which takes seconds."""
    if instance.engine == "echo":
        return EchoEngine.of(instance.options)
    if instance.engine == "local":
        from workers.engines.local import open_local

        return await open_local(instance)
    if instance.url is None:
        raise Misconfigured(f"instance {instance.name} has no URL")
    api_key = None
    if instance.api_key is not None:
        api_key = sealer_from(settings).unseal(instance.api_key, f"instance|{instance.public_id}").decode()
    timeout = settings.request_timeout_seconds
    return await UpstreamEngine.open(instance.url, api_key, most=instance.max_slots, timeout_seconds=timeout)
