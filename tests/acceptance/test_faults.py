"""Real processes, two of each, killed, paused and crashed at random: nothing is lost, nothing doubled, nothing changed."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from standardwebhooks.webhooks import Webhook

from tests.acceptance.campaign import (
    FINAL,
    Client,
    History,
    Receiver,
    Submitted,
    nemesis,
    poll_batches,
    runs_by_request,
    submit_batches,
)
from tests.acceptance.cluster import Cluster
from tests.waiting import until

SEED = int(os.environ.get("SLACKWATER_TEST_SEED", "7"))
FAULTS = int(os.environ.get("SLACKWATER_TEST_FAULTS", "14"))
NAMES = [f"{role}-{n}" for role in ("api", "duties", "dispatch", "worker") for n in (1, 2)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.make()
    yield cluster
    cluster.remove()


def test_random_faults_lose_and_double_nothing(cluster: Cluster) -> None:
    scenario = cluster.scenario()
    runs = cluster.home / "runs.log"
    scenario.instance(options={"latency_seconds": 0.02, "log_path": str(runs)})
    for name in NAMES:
        cluster.start(name)
    history, stop = History(), threading.Event()
    receiver = Receiver(history, SEED)
    client = Client(cluster, cluster.key(), stop)
    threads = [
        threading.Thread(target=submit_batches, args=(client, history, receiver.url, SEED + n)) for n in range(2)
    ]
    threads.append(threading.Thread(target=poll_batches, args=(client, history, SEED)))
    for thread in threads:
        thread.start()
    nemesis(cluster, history, SEED, FAULTS)
    stop.set()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a client never got an answer"
    print(f"seed={SEED} faults={Counter(f.split()[0] for f in history.faults)} batches={len(history.submitted)}")
    assert len(history.submitted) >= 10, "too few batches for a verdict"
    check(cluster, client, history, receiver)
    receiver.close()
    scenario.connection.close()
    assert set(cluster.stop().values()) == {0}, cluster.logs()


def check(cluster: Cluster, client: Client, history: History, receiver: Receiver) -> None:
    """After the faults: drain, then hold everything that was observed against what is stored."""
    with psycopg.connect(cluster.dsn, autocommit=True) as database:
        unfinished = "SELECT count(*) FROM batch WHERE state IN (0, 1, 2, 6)"
        drained = lambda: database.execute(unfinished).fetchone() == (0,)  # noqa: E731
        until(drained, seconds=90, about=lambda: f"every batch ends\n{cluster.logs()}")
        # A receiver that answered 500 or nothing is tried again in seconds, not hours, so that the test ends.
        hurry = "UPDATE delivery SET next_at = now() WHERE state = 0 AND token IS NULL"

        def delivered() -> bool:
            database.execute(hurry)
            return database.execute("SELECT count(*) FROM delivery WHERE state = 0").fetchone() == (0,)

        until(delivered, seconds=90, about=lambda: "every event is delivered")
        for left in ("segment", "lease"):
            assert database.execute(f"SELECT count(*) FROM {left}".encode()).fetchone() == (0,), f"a {left} is left"
        ledger = database.execute("SELECT sum(requests), sum(prompt_tokens) FROM ledger").fetchone()
        results = database.execute(
            "SELECT count(*), sum(prompt_tokens) FROM result WHERE instance_id IS NOT NULL"
        ).fetchone()
        assert ledger == results, "usage is not counted once for each result"
        assert database.execute("SELECT count(*) FROM batch").fetchone() == (len(history.submitted),), (
            "a batch too many or too few"
        )
    bodies = runs_by_request(cluster.home / "runs.log")
    for submitted in history.submitted:
        batch = client.call("GET", f"/v1/batches/{submitted.id}").json()
        check_batch(client, batch, submitted, bodies)
        check_statuses(history.statuses[submitted.id], batch)
        check_hooks(history, batch, submitted)


def check_batch(client: Client, batch: dict[str, Any], submitted: Submitted, bodies: dict[str, set[bytes]]) -> None:
    """Output and error lines: every custom_id once, as many as the counts say, and bodies as the client wrote them."""
    assert batch["status"] in FINAL
    assert (batch["status"] == "failed") == (submitted.is_refused and batch["status"] != "cancelled"), batch
    sides = [_lines(client, batch[name]) for name in ("output_file_id", "error_file_id")]
    counts = batch["request_counts"]
    assert (counts["completed"], counts["failed"]) == (len(sides[0]), len(sides[1])), batch
    assert counts["completed"] + counts["failed"] == counts["total"], batch
    seen = Counter(line["custom_id"] for side in sides for line in side)
    if counts["total"]:
        assert set(seen) == set(submitted.bodies)
        assert set(seen.values()) == {1}, f"doubled in {batch['id']}"
    for custom_id in seen:
        assert bodies.get(custom_id, set()) <= {submitted.bodies[custom_id]}, (
            f"the engine got other bytes for {custom_id}"
        )


def _lines(client: Client, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    content = client.call("GET", f"/v1/files/{file_id}/content").content
    return [json.loads(line) for line in content.splitlines()]


def check_statuses(seen: list[dict[str, Any]], last: dict[str, Any]) -> None:
    """Counts never shrink, and what was final once looks the same at the end."""
    done = 0
    for batch in seen:
        now = batch["request_counts"]["completed"] + batch["request_counts"]["failed"]
        assert now >= done, f"counts shrank in {batch['id']}"
        done = now
        if batch["status"] in FINAL:
            assert batch == last, f"a final batch changed: {batch} {last}"


def check_hooks(history: History, batch: dict[str, Any], submitted: Submitted) -> None:
    """At least one delivery, all of one id and the same bytes, each signed with the secret of its batch."""
    hooks = history.hooks[batch["id"]]
    assert hooks, f"no event for {batch['id']}"
    assert len({body for body, _ in hooks}) == 1
    assert len({headers["webhook-id"] for _, headers in hooks}) == 1
    for body, headers in hooks:
        if submitted.secret:
            Webhook(submitted.secret).verify(body.decode(), headers)
    event = json.loads(hooks[0][0])
    assert event["type"] == f"batch.{batch['status']}"
