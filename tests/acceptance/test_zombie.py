"""A worker that is stopped for longer than its leases and goes on: what it held runs elsewhere, and its late answers change nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from slackwater.lifecycle import BatchState
from tests.acceptance.cluster import Cluster
from tests.scenario import Scenario, chat_line
from tests.waiting import until

NAMES = [f"r{n}" for n in range(8)]
TOKENS = "SELECT coalesce(array_agg(token), '{}') FROM lease"
RESULTS = "SELECT array_agg((line, outcome, md5(body), at)::text ORDER BY line) FROM result WHERE batch_id = %s"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.make(lease_seconds="1")
    yield cluster
    cluster.remove()


def is_final(scenario: Scenario, batch_id: int) -> bool:
    return BatchState(scenario.row(batch_id)["state"]).is_final


@pytest.mark.parametrize("after_the_end", [False, True], ids=["while it runs again", "after the end"])
def test_a_worker_that_wakes_too_late_changes_nothing(cluster: Cluster, after_the_end: bool) -> None:
    scenario = cluster.scenario()
    runs = cluster.home / "runs.log"
    scenario.instance(options={"log_path": str(runs)})
    batch_id = scenario.batch([chat_line(name, "echo: sleep=1.5") for name in NAMES])

    def begun() -> int:
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    for name in ("duties-1", "worker-1"):
        cluster.start(name)
    until(begun, about=cluster.logs)
    cluster.signal("worker-1", signal.SIGSTOP)
    held: set[Any] = set(scenario.one(TOKENS))
    seen = begun()
    assert held
    assert scenario.one("SELECT count(*) FROM result") == 0

    cluster.start("worker-2")
    until(lambda: held.isdisjoint(scenario.one(TOKENS)) and begun() > seen, about=cluster.logs)
    if after_the_end:
        until(lambda: is_final(scenario, batch_id), about=cluster.logs)
    before = scenario.one(RESULTS, batch_id) or []
    cluster.signal("worker-1", signal.SIGCONT)
    until(lambda: is_final(scenario, batch_id), about=cluster.logs)

    cluster.kill("worker-2")
    next_id = scenario.batch([chat_line("next")])
    until(lambda: is_final(scenario, next_id), about=cluster.logs)
    results = scenario.one(RESULTS, batch_id)
    assert set(before) <= set(results)
    assert [line["custom_id"] for line in scenario.lines(batch_id)] == NAMES
    assert scenario.counts(batch_id).succeeded == len(NAMES)
    assert scenario.one("SELECT sum(requests) FROM ledger WHERE batch_id = %s", batch_id) == len(NAMES)
    assert scenario.one("SELECT count(*) FROM event WHERE batch_id = %s", batch_id) == 1
    scenario.close()
    codes = cluster.stop()
    assert codes.pop("worker-2") == -signal.SIGKILL
    assert set(codes.values()) == {0}
