"""A request that kills its engine: it alone is given up, its neighbours are answered, whoever died with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slackwater.lifecycle import BatchState
from tests.acceptance.cluster import Cluster
from tests.scenario import chat_line
from tests.waiting import until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.make(lease_seconds="1")
    yield cluster
    cluster.remove()


def test_the_killer_alone_is_given_up(cluster: Cluster) -> None:
    scenario = cluster.scenario()
    scenario.instance(options={"latency_seconds": 0.05})
    lines = [chat_line(f"r{n}", "echo:die" if n == 7 else "hi") for n in range(20)]
    batch_id = scenario.batch(lines)
    for name in ("duties-1", "worker-1"):
        cluster.start(name)

    def ended() -> bool:
        if cluster.processes["worker-1"].poll() is not None:
            cluster.start("worker-1")
        return BatchState(scenario.row(batch_id)["state"]).is_final

    until(ended, seconds=120, about=lambda: f"the batch ends\n{cluster.logs()}")

    assert BatchState(scenario.row(batch_id)["state"]) is BatchState.COMPLETED
    failed = {line["custom_id"]: line["error"]["code"] for line in scenario.lines(batch_id) if line["response"] is None}
    assert failed == {"r7": "engine_crash"}
    assert scenario.counts(batch_id).succeeded == 19
    scenario.close()
