"""The purge of a file against whoever has just begun with it: a batch that is being made over it, or a client that goes on sending."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Thread

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties import finalise, purge, settle
from slackwater.lifecycle import BatchState
from slackwater.storage.blobs import CHUNK_BYTES, Purged, Upload
from slackwater.storage.connections import connect
from slackwater.storage.database import Database
from tests.scenario import Scenario, chat_line, settings_for
from tests.waiting import until

CHUNKS = "SELECT count(*) FROM file_chunk WHERE file_id = %s"
AGE = "UPDATE file SET touched_at = now() - interval '61 min' WHERE id = %s"


@pytest.fixture
def purger(scenario: Scenario) -> Iterator[Connection[TupleRow]]:
    with connect(scenario.dsn) as connection:
        yield connection


def purge_until(scenario: Scenario, purger: Connection[TupleRow], act: Callable[[], None]) -> None:
    """Purge; `act` happens once the purge waits for a lock."""
    thread = Thread(target=purge.step, args=(purger, settings_for(scenario.dsn)))
    thread.start()
    until(lambda: not thread.is_alive() or waits(scenario))
    act()
    thread.join(60)
    assert not thread.is_alive()


def waits(scenario: Scenario) -> bool:
    return bool(scenario.connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())


def test_a_file_that_expires_while_its_batch_is_made_keeps_its_bytes(
    scenario: Scenario, purger: Connection[TupleRow]
) -> None:
    """The create looked at the file a moment before its end and commits a moment after the purge has looked."""
    batch_id = scenario.batch([chat_line("a")], plan_now=False)
    file_id = scenario.row(batch_id)["file_id"]
    scenario.connection.execute("UPDATE batch SET state = 4 WHERE id = %s", (batch_id,))
    scenario.connection.execute("UPDATE file SET expires_at = now() WHERE id = %s", (file_id,))
    with psycopg.connect(scenario.dsn) as making:
        making.execute("SELECT FROM file WHERE id = %s FOR SHARE", (file_id,))
        making.execute("UPDATE batch SET state = 0 WHERE id = %s", (batch_id,))  # Stands for the insert.
        purge_until(scenario, purger, making.commit)

    assert scenario.one(CHUNKS, file_id) == 1
    scenario.plan()
    assert scenario.row(batch_id)["state"] == BatchState.IN_PROGRESS


def test_a_file_that_is_purged_is_closed_first(scenario: Scenario, purger: Connection[TupleRow]) -> None:
    file_id = scenario.upload(chat_line("a"))
    scenario.connection.execute("UPDATE file SET expires_at = now() - %s WHERE id = %s", (timedelta(hours=1), file_id))

    purge.step(purger, settings_for(scenario.dsn))

    assert scenario.one(CHUNKS, file_id) == 0
    assert scenario.one("SELECT deleted_at IS NOT NULL FROM file WHERE id = %s", file_id)


def test_an_upload_that_goes_on_in_time_keeps_its_bytes(scenario: Scenario, purger: Connection[TupleRow]) -> None:
    file_id = scenario.upload(b"x")
    scenario.connection.execute("UPDATE file SET is_complete = false WHERE id = %s", (file_id,))
    scenario.connection.execute(AGE, (file_id,))
    with psycopg.connect(scenario.dsn) as writing:
        writing.execute("UPDATE file SET touched_at = now() WHERE id = %s", (file_id,))
        purge_until(scenario, purger, writing.commit)

    assert scenario.one(CHUNKS, file_id) == 1


async def test_an_upload_that_goes_on_too_late_ends(scenario: Scenario, purger: Connection[TupleRow]) -> None:
    """What it sent before is gone: going on would make a file with a hole."""
    database = Database(scenario.dsn, pool_size=1)
    upload = Upload(database, scenario.tenant_id, scenario.project_id, 10 * CHUNK_BYTES)
    await upload.open()
    await upload.write(b"x" * CHUNK_BYTES)
    scenario.connection.execute(AGE, (upload.file_id,))
    assert purge._close(purger, {"tenant_id": scenario.tenant_id, "file_id": upload.file_id or 0})

    with pytest.raises(Purged):
        await upload.write(b"y" * CHUNK_BYTES)
    with pytest.raises(Purged):
        await upload.complete(filename="a", purpose="batch", life=None)
    await upload.discard()
    await database.close()
    assert scenario.one("SELECT count(*) FROM file") == 0
    assert scenario.one("SELECT count(*) FROM file_chunk") == 0


def test_a_purge_of_results_that_was_broken_off_is_ended(
    scenario: Scenario, purger: Connection[TupleRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(3)], window=timedelta(seconds=-1))
    settings = settings_for(scenario.dsn)
    for step in (settle.expire, settle.step, finalise.step):
        step(purger, settings)
    scenario.connection.execute("UPDATE batch SET expired_at = expired_at - interval '1 hour'")
    scenario.connection.execute("UPDATE file SET deleted_at = now() WHERE batch_id = %s", (batch_id,))
    drain, done = purge._drain, list[str]()

    def breaks(connection: Connection[TupleRow], statement: str, where: dict[str, int]) -> None:
        if len(done) == 2:
            raise psycopg.OperationalError
        done.append(statement)
        drain(connection, statement, where)

    monkeypatch.setattr(purge, "_drain", breaks)
    with pytest.raises(psycopg.OperationalError):
        purge.step(purger, settings)
    monkeypatch.undo()

    purge.step(purger, settings)

    for table in ("output_index", "request", "result"):
        assert scenario.one(f"SELECT count(*) FROM {table}") == 0
