"""Which model server this worker stands beside, and the engine that reaches it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import dict_row

from scheduler.admission import Mode, Objectives, Policy
from slackwater.errors import Misconfigured
from slackwater.sealing import sealer_from
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from workers.engines.base import Engine
from workers.engines.echo import EchoEngine
from workers.engines.openai_http import UpstreamEngine

OPTIONS: Final = ("ttft_seconds", "inter_token_seconds", "chunk_tokens", "prefill_cap_tokens", "deadline_share")
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
    mode: Mode
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


def policy_of(settings: Settings, instance: Instance) -> Policy:
    """What the operator allows on an instance. Its options may set `ttft_seconds` and `inter_token_seconds` (the objectives of live requests),
    `chunk_tokens` and `prefill_cap_tokens` (how its server was started), and `deadline_share`.

    Raises:
        Misconfigured: an option is no number above 0.
    """
    options = {name: _positive(instance, name) for name in OPTIONS if instance.options.get(name) is not None}
    rest: dict[str, Any] = {
        name: int(options[name]) for name in ("chunk_tokens", "prefill_cap_tokens") if name in options
    }
    if "deadline_share" in options:
        rest["deadline_share"] = options["deadline_share"]
    return Policy(
        min(instance.max_slots, settings.max_slots),
        instance.mode,
        settings.signal_max_age_seconds,
        settings.signal_lost_seconds,
        objectives=Objectives(options.get("ttft_seconds"), options.get("inter_token_seconds")),
        **rest,
    )


def _positive(instance: Instance, name: str) -> float:
    value = instance.options[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise Misconfigured(f"the option {name!r} of instance {instance.name} must be a number above 0")
    return float(value)


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
