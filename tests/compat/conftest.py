"""Every process of the product, once for all compatibility tests, and two tenants' keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.acceptance.cluster import Cluster
from tests.compat.streams import streams
from tests.scenario import MODEL

PARTS = ("api-1", "duties-1", "worker-1", "dispatch-1")


@dataclass(frozen=True)
class Running:
    """A server that runs batches on the echo engine."""

    cluster: Cluster
    key: str
    other_key: str
    model: str = MODEL

    @property
    def url(self) -> str:
        return self.cluster.urls["api-1"]

    def tenant(self, name: str) -> str:
        """The key of a new tenant."""
        self.cluster.scenario(models=(), name=name).close()
        return self.cluster.key(name)


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    cluster = Cluster.make()
    try:
        scenario = cluster.scenario()
        scenario.instance(options={"latency_seconds": 0.002})
        scenario.close()
        cluster.scenario(models=(), name="beta").close()
        for part in PARTS:
            cluster.start(part)
        with streams(cluster.dsn):
            yield Running(cluster, cluster.key(), cluster.key("beta"))
        cluster.stop()
    finally:
        cluster.remove()
