"""The plans of the racing statements, prepared and generic as workers run them: by index, and as cheap at many as at few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from benchmarks.queued import Queue
from scheduler.queue import statements, storing
from scheduler.queue.results import _sums
from slackwater.storage.connections import connect
from tests.races.crew import Hand
from tests.races.plans import Prepared, buffers, indexes, nodes, seq_scanned

# What a server holds after a while: files, batches that are over, leases of others, bills.
SURROUNDINGS = (
    "INSERT INTO file_chunk SELECT 1, g, 0, 0, 'x' FROM generate_series(1000, 6000) g",
    """INSERT INTO batch (tenant_id, public_id, project_id, endpoint, input_file_id, output_file_id, error_file_id, completion_window, state,
                           expires_at)
       SELECT 1, 'batch_' || g, 1, '/v1/chat/completions', 'i', 'o', 'e', '24h', 3, now() FROM generate_series(1, 3000) g""",
    """INSERT INTO batch_model SELECT b.tenant_id, b.id, 1, 1, 1 FROM batch b WHERE b.state = 3""",
    """INSERT INTO lease SELECT gen_random_uuid(), 9, 1, 1, 1, g, 1, 0, 0, 0, 0, false, now() + interval '1 hour'
         FROM generate_series(1, 3000) g""",
    """INSERT INTO ledger (at, tenant_id, project_id, flow, model_id, requests, prompt_tokens, completion_tokens, cached_tokens, cost_picodollars)
       SELECT now() - g * interval '1 minute', 1, 1, 'batch', 1, 64, 1, 1, 0, 1 FROM generate_series(1, 5000) g""",
)
ANSWERED = """
INSERT INTO result (tenant_id, batch_id, line, outcome, prompt_tokens, completion_tokens, attempt, body)
SELECT tenant_id, batch_id, line, 0, 1, 1, 1, 'x' FROM request WHERE batch_id = %s AND position %% 2 = 0
"""
HOT = ("segment", "request", "result", "file_chunk", "lease", "batch", "ledger")


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    queue = Queue(dsn)
    yield queue
    queue.connection.close()


@pytest.fixture
def worker(dsn: str) -> Iterator[Connection[TupleRow]]:
    with connect(dsn) as connection:
        yield connection


def grow(queue: Queue) -> list[int]:
    batches = queue.fill(4, 10_000, analyse=False)
    for statement in SURROUNDINGS:
        queue.connection.execute(statement.encode())
    queue.connection.execute(ANSWERED.encode(), (batches[0],))
    return batches


def claim_values(batch_id: int, most: int = 64) -> dict[str, Any]:
    values = {"batches": [batch_id], "model_id": 1, "most": most, "retries": True, "worker_id": 1}
    return values | {"token": uuid4(), "lease_seconds": 60.0}


async def store_values(dsn: str, batch_id: int) -> dict[str, Any]:
    hand = Hand(dsn, 1, Random(1))
    claim = await hand.claim(1, [batch_id], 64)
    assert claim is not None
    finished = [hand.finish(r) for r in claim.requests]
    sums = _sums(finished)
    assert sums is not None
    values = hand.results._store(finished) | sums
    await hand.close()
    return values | release_values(claim.token, claim.first)


def release_values(token: UUID, first: int) -> dict[str, Any]:
    back = {
        "back_tokens": [token],
        "firsts": [first],
        "ns": [8],
        "delays": [0.0],
        "back_attempts": [0],
        "deferrals": [0],
    }
    return {"tokens": [token], "closed": [token]} | back


def hot_scans(plan: dict[str, Any]) -> set[str]:
    return {name for name in seq_scanned(plan) if name.startswith(HOT) and not name.startswith("batch_model")}


async def plan_of(name: str, connection: Connection[TupleRow], queue: Queue, batches: list[int]) -> dict[str, Any]:
    values: dict[str, Any] = {"models": [1], "tenant_id": 1, "batch_id": batches[0], "first": 0, "lease_seconds": 60.0}
    values |= claim_values(batches[1])
    values |= await store_values(queue.dsn, batches[2])
    return Prepared(connection, text_of(name)).plan(values)


def text_of(name: str) -> str:
    text: str = getattr(storing if name in ("STORE", "STORE_WHOLE", "RELEASE") else statements, name)
    return text


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("CLAIM", {"segment_ready"}),
        ("STORE", {"lease_pkey"}),
        ("STORE_WHOLE", {"lease_pkey"}),
        ("RELEASE", {"lease_pkey"}),
        ("HEARTBEAT", {"lease_pkey"}),
        ("MISSING", set()),
        ("LINE", {"segment_ready", "batch_unfinished", "ledger_by_time"}),
        ("READY_DELAYED", {"segment_delayed"}),
    ],
)
async def test_plans_go_by_index(name: str, wanted: set[str], queue: Queue, worker: Connection[TupleRow]) -> None:
    batches = grow(queue)
    queue.connection.execute("ANALYZE")

    plan = await plan_of(name, worker, queue, batches)

    assert wanted <= indexes(plan)
    assert hot_scans(plan) == set()
    assert "hashed" not in json.dumps(plan)
    assert sum(n.get("Rows Removed by Join Filter", 0) for n in nodes(plan)) == 0


@pytest.mark.parametrize("name", ["CLAIM", "STORE", "STORE_WHOLE", "MISSING", "LINE"])
async def test_a_plan_made_while_empty_is_cured(name: str, queue: Queue, worker: Connection[TupleRow]) -> None:
    """Analysed while empty, planned, filled: what DISCARD PLANS brings back touches what an analysed database's plan does."""
    queue.connection.execute("ANALYZE")
    values = claim_values(0) | {"models": [1], "tenant_id": 1, "batch_id": 0, "first": 0}
    prepared = Prepared(worker, text_of(name))
    empty: dict[str, Any] = {n: [] for n in prepared.names} | {"worker_id": 1, "instance_id": 1}
    prepared.plan(empty | values | ({"batches": []} if name.startswith("STORE") else {}))
    batches = grow(queue)
    full = values | {"batches": [batches[1]], "batch_id": batches[0]}
    if name.startswith("STORE"):
        full |= await store_values(queue.dsn, batches[2])
    stale = buffers(prepared.plan(empty | full))

    worker.execute("DISCARD PLANS", prepare=False)
    cured = buffers(prepared.plan(empty | full))
    queue.connection.execute("ANALYZE")
    good = buffers(prepared.plan(empty | full))

    assert cured <= stale
    assert cured <= 2 * good + 50


@pytest.mark.parametrize("most", [1, 8, 64])
def test_a_claim_touches_no_more_at_many_than_at_few(most: int, queue: Queue, worker: Connection[TupleRow]) -> None:
    (few,) = queue.fill(1, 640)
    prepared = Prepared(worker, statements.CLAIM)
    small = buffers(prepared.plan(claim_values(few, most)))
    many = queue.fill(10, 10_000)

    large = [buffers(prepared.plan(claim_values(batch_id, most))) for batch_id in many]

    assert sorted(large)[len(large) // 2] <= 1.5 * small + 8


async def test_a_link_forgets_its_plans(queue: Queue) -> None:
    """The claims of a worker that began on an empty database are cheap once it is full."""
    queue.connection.execute("ANALYZE")
    hand = Hand(queue.dsn, 1, Random(1))
    assert await hand.claim(1, [0], 64) is None
    connection = await hand.claims.link.get()
    planned = "SELECT sum(generic_plans) FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO lease%'"
    hand.claims.link._planned_at = 0.0

    assert await hand.claims.link.get() is connection

    row = await (await connection.execute(planned)).fetchone()
    assert row is not None
    assert row[0] >= 1
    await hand.close()
