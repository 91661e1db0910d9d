"""The database is away for longer than a lease, twice, while a suspect runs alone: that is nobody's death."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from slackwater.lifecycle import BatchState
from tests.acceptance.cluster import Cluster
from tests.scenario import chat_line
from tests.waiting import until

LEASE_SECONDS = 3.0
AWAY_SECONDS = 1.5 * LEASE_SECONDS


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # What was not committed for good is gone in a crash, not only where the server had no time.
    cluster = Cluster.make(lease_seconds=str(LEASE_SECONDS), server={"wal_writer_delay": "10s"})
    yield cluster
    cluster.remove()


def test_two_outages_take_nothing_from_a_worker_that_lives(cluster: Cluster) -> None:
    scenario = cluster.scenario()
    runs = cluster.home / "runs.log"
    scenario.instance(options={"log_path": str(runs)})
    batch_id = scenario.batch([chat_line("suspect", "echo: sleep=30")])
    scenario.connection.execute("UPDATE segment SET rescues = 2")
    for name in ("duties-1", "worker-1"):
        cluster.start(name)

    def holds(fact: str) -> bool:
        with psycopg.connect(cluster.dsn) as database:
            return database.execute(f"SELECT FROM lease WHERE {fact}".encode()).fetchone() is not None

    until(lambda: holds("is_alone"), about=cluster.logs)
    scenario.close()

    cluster.freeze_postgres(AWAY_SECONDS)
    until(lambda: holds("is_alone AND expires_at > now()"), about=cluster.logs)
    cluster.crash_postgres(AWAY_SECONDS)
    until(lambda: holds("is_alone AND expires_at > now()"), about=cluster.logs)

    with psycopg.connect(cluster.dsn, autocommit=True) as database:
        until(lambda: database.execute("SELECT state > 2 FROM batch").fetchone() == (True,), 120, about=cluster.logs)
        assert database.execute("SELECT state FROM batch").fetchone() == (BatchState.COMPLETED,)
        assert database.execute("SELECT outcome, attempt FROM result").fetchall() == [(0, 1)]
        broken_off = database.execute("SELECT why, at::text FROM attempt WHERE batch_id = %s", (batch_id,)).fetchall()
        assert not broken_off, f"{broken_off}\n{cluster.logs()}"
    assert len(runs.read_text().splitlines()) == 1
    assert set(cluster.stop().values()) == {0}
