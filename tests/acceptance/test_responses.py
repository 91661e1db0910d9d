"""A response in the background outlives every process that served it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.acceptance.cluster import Cluster
from tests.scenario import MODEL
from tests.waiting import until

LAST = 9


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.make(lease_seconds="1")
    yield cluster
    cluster.remove()


def test_it_outlives_its_worker_and_the_process_that_streams_it(cluster: Cluster) -> None:
    scenario = cluster.scenario()
    scenario.instance(options={"latency_seconds": 2})
    for name in ("api-1", "duties-1", "worker-1"):
        cluster.start(name)
    with OpenAI(base_url=f"{cluster.urls['api-1']}/v1", api_key=cluster.key()) as client:
        stream = client.responses.create(model=MODEL, input="echo:text=late sleep=2", background=True, stream=True)
        seen: list[Any] = list(itertools.islice(stream, 3))
        assert [event.type for event in seen][-1] == "response.in_progress"
        cluster.kill("worker-1")
        cluster.kill("api-1")
        with pytest.raises((openai.APIError, openai.APIConnectionError)):
            list(stream)
    for name in ("worker-1", "api-1"):
        cluster.start(name)
    with OpenAI(base_url=f"{cluster.urls['api-1']}/v1", api_key=cluster.key()) as client:
        response_id = seen[0].response.id
        rest = list(client.responses.retrieve(response_id, stream=True, starting_after=2))
        done = client.responses.retrieve(response_id)

    assert [event.sequence_number for event in (*seen, *rest)] == list(range(LAST + 1))
    assert (done.status, done.output_text) == ("completed", "late"), cluster.logs()
    until(lambda: scenario.one("SELECT count(*) FROM ledger") == 1)
    told = scenario.connection.execute("SELECT type FROM event").fetchall()
    assert told == [("response.completed",)]
    scenario.close()
