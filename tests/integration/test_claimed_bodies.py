"""A claim brings exactly the bytes that the client wrote, however the bodies of its requests lie in the file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from scheduler.queue.claims import Claims
from tests.scenario import MODEL, Scenario, chat_line

CALLS = "SELECT coalesce(sum(generic_plans), 0)::int FROM pg_prepared_statements WHERE statement LIKE %s"
APART = "%AS x (start, length, turn)%"


@pytest.fixture
def scenario(dsn: str) -> Iterator[Scenario]:
    scenario = Scenario.on(dsn)
    yield scenario
    scenario.close()


@pytest.fixture
async def claims(scenario: Scenario) -> AsyncIterator[Claims]:
    claims = Claims.on(scenario.dsn, 1, 60.0)
    yield claims
    await claims.close()


async def claimed(scenario: Scenario, claims: Claims, lines: Sequence[bytes], most: int) -> int:
    """Claim all of `lines` and compare; returns how often bodies were read one by one."""
    batch_id = scenario.batch(lines)
    bodies: dict[str, bytes] = {}
    while (claim := await claims.claim(scenario.models[MODEL], [batch_id], most=most)) is not None:
        assert [r.position for r in claim.requests] == list(range(claim.first, claim.first + claim.n))
        bodies |= {r.custom_id: r.body for r in claim.requests}
    assert len(bodies) == len(lines)
    for line in lines:
        written = json.loads(line)
        assert bodies[written["custom_id"]] == json.dumps(written["body"]).encode()
    cursor = await (await claims.link.get()).execute(CALLS, (APART,))
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("most", [1, 7, 64])
async def test_neighbours_are_read_at_once(most: int, scenario: Scenario, claims: Claims) -> None:
    lines = [chat_line(f"r{n}", f"{n} ".ljust(2_000, "x")) for n in range(70)]

    assert await claimed(scenario, claims, lines, most) == 0


async def test_bodies_far_apart_are_read_one_by_one(scenario: Scenario, claims: Claims) -> None:
    """Eight prompts in turn run as eight groups: a claim of eight lies across 256 KiB."""
    lines = [chat_line(f"r{n}", f"{n % 8} ".ljust(4_000, "x")) for n in range(128)]

    assert await claimed(scenario, claims, lines, 8) > 0


@pytest.mark.parametrize("groups", [1, 6])
async def test_bodies_that_go_on_in_other_chunks_are_whole(groups: int, scenario: Scenario, claims: Claims) -> None:
    """Long and short in turn: a claim has several chunks, and bodies that none of them holds whole."""
    lines = [chat_line(f"r{n}", f"{n % groups} ".ljust(1_500_000 if n % 5 == 0 else 30_000, "x")) for n in range(24)]

    await claimed(scenario, claims, lines, 6)


@pytest.mark.parametrize(
    "lines",
    [[chat_line(f"r{n}", f"{n % 8} ".ljust(4_000, "x")) for n in range(128)], [chat_line("long", "x" * 3_000_000)]],
)
async def test_bodies_that_are_purged_after_the_claim_are_not_run_in_part(
    scenario: Scenario, claims: Claims, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker stood still between the two readings: its batch was cancelled and deleted meanwhile."""
    batch_id, take = scenario.batch(lines), claims._take

    async def late(*asked: Any) -> Any:
        rows = await take(*asked)
        scenario.connection.execute("DELETE FROM file_chunk")
        scenario.connection.execute("DELETE FROM segment")
        return rows

    monkeypatch.setattr(claims, "_take", late)

    assert await claims.claim(scenario.models[MODEL], [batch_id], most=8) is None
    assert scenario.one("SELECT count(*) FROM lease") == 0
