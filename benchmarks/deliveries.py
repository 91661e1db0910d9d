"""Recorded deliveries a second of one sender, to a local receiver with keep-alive.

    python -m benchmarks.deliveries [--dsn postgresql://slackwater@127.0.0.1/empty] [--deliveries 20000] [--endpoints 20]

Without a DSN it starts a PostgreSQL of its own; a database that is named must be empty of deliveries, and is migrated first. Each
delivery is claimed, signed, sent, and its attempt and new state are committed. The receiver is a process of its own that parses no more
than it must.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import cast

import psycopg
import uvloop
from pydantic import SecretStr

from scheduler.dispatch.claims import Limits
from scheduler.dispatch.loop import run
from slackwater import outbox
from slackwater.embedded import Postgres
from slackwater.sealing import sealer_from
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from slackwater.storage.database import Database
from slackwater.storage.migrate import upgrade
from slackwater.webhooks import endpoints

REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
MASTER_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


class _Receiver(asyncio.Protocol):
    """Answers once the announced body is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._buffer = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        while end:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(body) < length:
                return
            self._transport.write(REPLY)
            self._buffer = body[length:]
            head, end, body = self._buffer.partition(b"\r\n\r\n")


def _receive(port: Pipe) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Receiver, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


async def _prepare(settings: Settings, url: str, n_endpoints: int, n_deliveries: int) -> None:
    with psycopg.connect(settings.dsn, autocommit=True) as owner:
        tenant = owner.execute(
            "INSERT INTO tenant (public_id, name) VALUES (gen_random_uuid(), gen_random_uuid()) RETURNING id"
        ).fetchone()
        assert tenant is not None
        project = owner.execute(
            "INSERT INTO project (tenant_id, public_id, name) VALUES (%s, 'proj', 'main') RETURNING id", tenant
        ).fetchone()
        assert project is not None
    database = Database(settings.dsn)
    async with database.tenant(tenant[0]) as connection:
        for n in range(n_endpoints):
            await endpoints.create(
                connection,
                sealer=sealer_from(settings),
                settings=settings,
                tenant_id=tenant[0],
                project_id=project[0],
                url=f"{url}/{n}",
                event_types=["batch.completed"],
            )
    await database.close()
    data = {"id": "batch_" + "0" * 32, "request_counts": {"total": 1, "completed": 1, "failed": 0}}
    with connect(settings.dsn) as publisher, publisher.transaction():
        for batch_id in range(n_deliveries // n_endpoints):
            outbox.publish(publisher, tenant[0], batch_id, "batch.completed", data)


async def _measure(settings: Settings, limits: Limits) -> tuple[int, float, float]:
    """Deliveries recorded, seconds, and the sender's own CPU seconds."""
    stopping = asyncio.Event()
    async with await psycopg.AsyncConnection.connect(settings.dsn, autocommit=True) as watcher:
        began, used = time.perf_counter(), _cpu()
        sender = asyncio.create_task(run(settings, stopping, limits))
        left = 1
        while left:
            await asyncio.sleep(0.05)
            cursor = await watcher.execute("SELECT EXISTS (SELECT FROM delivery WHERE state = 0 AND attempts = 0)")
            row = await cursor.fetchone()
            left = int(row[0]) if row else 0
        seconds, spent = time.perf_counter() - began, _cpu() - used
        stopping.set()
        await sender
        cursor = await watcher.execute("SELECT count(*) FROM delivery_attempt WHERE error IS NULL")
        row = await cursor.fetchone()
        return int(row[0]) if row else 0, seconds, spent


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn")
    parser.add_argument("--deliveries", type=int, default=20_000)
    parser.add_argument("--endpoints", type=int, default=20)
    parser.add_argument("--in-flight", type=int, default=Limits().in_all)
    asked = parser.parse_args()
    if asked.dsn:
        report(asked.dsn, asked)
        return
    home = Path(tempfile.mkdtemp(prefix="slackwater-bench-"))
    home.chmod(0o755)
    with Postgres(home / "postgres") as server:
        report(server.dsn, asked)
    shutil.rmtree(home, ignore_errors=True)


def report(dsn: str, asked: argparse.Namespace) -> None:
    """Measure on an empty database, and print the figures."""
    upgrade(dsn)
    settings = Settings(
        database_url=SecretStr(dsn),
        master_key=SecretStr(MASTER_KEY),
        webhook_allow=("127.0.0.1/32",),
        webhook_allow_http=True,
    )
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.get_context("spawn").Process(target=_receive, args=(theirs,), daemon=True)
    receiver.start()
    try:
        url = f"http://127.0.0.1:{ours.recv()}"
        asyncio.run(_prepare(settings, url, asked.endpoints, asked.deliveries))
        limits = Limits(in_all=asked.in_flight, per_tenant=asked.in_flight)
        n, seconds, spent = uvloop.run(_measure(settings, limits))
    finally:
        receiver.terminate()
    figures = {
        "deliveries": n,
        "seconds": round(seconds, 2),
        "deliveries_per_second": round(n / seconds),
        "deliveries_per_sender_cpu_second": round(n / spent),
        "endpoints": asked.endpoints,
        "in_flight": asked.in_flight,
        "cores": os.cpu_count(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
