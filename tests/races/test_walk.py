"""Whatever clients, duties and a purge do to the same objects at once: no 5xx, nothing unforeseen in a log, nothing lost, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncConnection

import api.errors
import slackwater.loop
import workers.runs
from scheduler.dispatch import loop as dispatch
from scheduler.duties import finalise, plan, purge, rescue, settle
from slackwater.settings import Settings
from slackwater.storage.connections import connect
from slackwater.tenancy import keys, models, tenants
from slackwater.tenancy.keys import ADMIN
from tests.integration.api.conftest import MASTER_KEY, Api
from tests.integration.api.conftest import running as serving
from tests.integration.api.work import add_echo, at_work
from tests.races.invariants import check_ranges
from tests.races.walk import Seen, Walk, rows
from tests.scenario import MODEL
from tests.waiting import until

SECONDS = float(os.environ.get("SLACKWATER_WALK_SECONDS", "10"))
SEED = int(os.environ.get("SLACKWATER_WALK_SEED", str(time.time_ns() % 1_000_000)))

# What must be empty once everything has come to its end and was purged.
LEFT: dict[str, str] = {
    "unfinished batches": "SELECT id, state FROM batch WHERE state IN (0, 1, 2, 6)",
    "segments": "SELECT * FROM segment",
    "leases": "SELECT * FROM lease",
    "chunks without a file": "SELECT c.file_id, c.n FROM file_chunk c LEFT JOIN file f ON f.id = c.file_id WHERE f.id IS NULL",
    "parts of ended uploads": "SELECT p.* FROM upload_part p JOIN upload u ON u.id = p.upload_id WHERE u.state > 0",
    "files that nobody writes": "SELECT id FROM file f WHERE NOT is_complete AND NOT EXISTS (SELECT FROM upload_part p WHERE p.file_id = f.id)",
    "files that are not whole": """
        SELECT f.id, f.bytes, sum(octet_length(c.data)) FROM file f LEFT JOIN file_chunk c ON c.file_id = f.id
         WHERE f.is_complete AND f.batch_id IS NULL AND f.deleted_at IS NULL AND (f.expires_at IS NULL OR f.expires_at > now())
         GROUP BY f.id, f.tenant_id, f.bytes HAVING f.bytes <> coalesce(sum(octet_length(c.data)), 0)""",
    "chunks of files that are gone": """
        SELECT f.id FROM file f JOIN file_chunk c ON c.file_id = f.id WHERE f.deleted_at IS NOT NULL OR f.expires_at < now()""",
    "results that are not all": """
        SELECT b.id, b.total, count(r.line) FROM batch b LEFT JOIN result r ON r.batch_id = b.id
         WHERE EXISTS (SELECT FROM output_index i WHERE i.batch_id = b.id) GROUP BY b.id, b.total HAVING count(r.line) <> b.total""",
    "results that were to be purged": """
        SELECT r.batch_id, r.line FROM result r WHERE NOT EXISTS (SELECT FROM output_index i WHERE i.batch_id = r.batch_id)""",
    "counts that are not the total": """
        SELECT id, total, counts FROM batch WHERE state IN (3, 5, 7)
           AND total <> (SELECT coalesce(sum(succeeded + failed + expired + cancelled), 0) FROM progress p WHERE p.batch_id = batch.id)""",
    "bills that are not the results": """
        SELECT b.id FROM batch b WHERE (SELECT coalesce(sum(requests), 0) FROM ledger l WHERE l.batch_id = b.id)
            <> (SELECT coalesce(sum(succeeded + failed), 0) FROM progress p WHERE p.batch_id = b.id AND p.slot > 0)""",
    "events that are not one": """
        SELECT b.id, b.state, count(e.id) FROM batch b LEFT JOIN event e ON e.batch_id = b.id
         WHERE b.state IN (3, 4, 5, 7) GROUP BY b.id, b.state HAVING count(e.id) <> 1""",
    "secrets of deleted endpoints": "SELECT s.id FROM secret s JOIN endpoint e ON e.id = s.endpoint_id WHERE e.deleted_at IS NOT NULL",
}  # fmt: skip


class Noted:
    """A log whose errors are faults."""

    def __init__(self, log: Any, seen: Seen) -> None:
        self._log, self._seen = log, seen

    def error(self, event: str, **values: Any) -> None:
        self._seen.faults.append(f"{event}: {values.get('exc_info')!r} {_places(values.get('exc_info'))}")

    def exception(self, event: str, **values: Any) -> None:
        import sys

        error = sys.exc_info()[1]
        self._seen.faults.append(f"{event} {values}: {error!r} {_places(error)}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def _places(error: BaseException | None) -> list[str]:
    import traceback

    return (
        [f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-6:]]
        if error
        else []
    )


@contextmanager
def sending(settings: Settings) -> Iterator[None]:
    """A webhook sender, whose every receiver is away."""
    ready, loops = threading.Event(), []

    async def run() -> None:
        stopping = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stopping))
        await dispatch.run(settings, stopping, ready=ready.set)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        loop, stopping = loops[0]
        loop.call_soon_threadsafe(stopping.set)
        thread.join(60)
    assert not thread.is_alive()


async def people(connection: AsyncConnection, api: Api) -> None:
    for name in ("alpha", "beta"):
        await tenants.create(connection, name)
    await models.ensure(connection, MODEL)
    api.key = (await keys.create(connection, "alpha")).text
    api.admin_key = (await keys.create(connection, "alpha", scopes=[ADMIN])).text


def settle_all(api: Api, settings: Settings) -> None:
    """Everything comes to its end: no new work, every batch cancelled, every file purged that may be."""
    with psycopg.connect(api.dsn, autocommit=True) as owner, connect(api.dsn) as connection:
        owner.execute("UPDATE instance SET disabled_at = NULL")
        owner.execute("UPDATE batch SET state = 6, cancelling_at = now() WHERE state IN (0, 1)")

        def is_over() -> bool:
            for step in (plan.step, rescue.step, settle.step, finalise.step):
                step(connection, settings)
            return not rows(owner, LEFT["unfinished batches"])

        until(is_over, 60)
        owner.execute("UPDATE file SET touched_at = now() - interval '2 hours' WHERE NOT is_complete")
        owner.execute(
            "UPDATE batch SET completed_at = completed_at - interval '1 hour', cancelled_at = cancelled_at - interval '1 hour',"
            " expired_at = expired_at - interval '1 hour'"
        )
        owner.execute("UPDATE upload SET expires_at = now()")
        until(lambda: purge.step(connection, settings) == 0, 60)
        purge.step(connection, settings)


def test_clients_that_do_anything_at_once(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(
        database_url=SecretStr(dsn), master_key=SecretStr(MASTER_KEY), port=0, webhook_allow=("127.0.0.1/32",),
        webhook_allow_http=True, lease_seconds=2.0, grace_seconds=1.0,
    )  # fmt: skip
    print(f"SLACKWATER_WALK_SEED={SEED}")
    with serving(settings) as url:
        api_ = Api(url, dsn)
        api_.admin(lambda connection: people(connection, api_))
        add_echo(dsn, max_slots=8)
        walk = Walk(api_, settings, SEED)
        for module in (api.errors, slackwater.loop, workers.runs):
            monkeypatch.setattr(module, "log", Noted(module.log, walk.seen))
        with at_work(settings), sending(settings):
            walk.run(SECONDS)
            settle_all(api_, settings)
        api_.close()

    print(sorted(walk.seen.replies.items()))
    with psycopg.connect(dsn, autocommit=True) as owner:
        check_ranges(owner)
        left = {what: found for what, query in LEFT.items() if (found := rows(owner, query))}
    assert walk.seen.faults == []
    assert left == {}
