"""What STORE and RELEASE promise where a lease is over, a line comes twice, or the batch is final."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import psycopg
import pytest

from scheduler.duties import finalise, rescue
from scheduler.queue.work import Claim, Finished, Returned
from slackwater.lifecycle import Outcome
from slackwater.storage.connections import connect
from tests.races.crew import Hand, lapse
from tests.races.invariants import check_counts, check_ranges
from tests.scenario import MODEL, Scenario, chat_line, settings_for
from tests.waiting import until_async


@pytest.fixture
async def hand(scenario: Scenario) -> AsyncIterator[Hand]:
    hand = Hand(scenario.dsn, 1, Random(1))
    yield hand
    await hand.close()


async def claimed(scenario: Scenario, hand: Hand, lines: int = 4) -> Claim:
    batch_id = scenario.batch([chat_line(f"r{n}") for n in range(lines)])
    claim = await hand.claim(scenario.models[MODEL], [batch_id], 64)
    assert claim is not None
    return claim


async def test_a_late_error_does_not_lose_its_line(scenario: Scenario, hand: Hand) -> None:
    """The lease ran out but nobody took it back: what its holder stores and closes stays whole."""
    claim = await claimed(scenario, hand)
    lapse(scenario.connection, claim.token)
    errors = [hand.finish(r, Outcome.FAILED) for r in claim.requests]

    await hand.store(errors, [claim.token])

    check_ranges(scenario.connection)
    check_counts(scenario.connection)


async def test_a_late_error_after_the_rescue_is_dropped(scenario: Scenario, hand: Hand) -> None:
    claim = await claimed(scenario, hand)
    lapse(scenario.connection, claim.token)
    with connect(scenario.dsn) as connection:
        assert rescue.step(connection, settings_for(scenario.dsn)) == 1
    late = [hand.finish(r, Outcome.FAILED if r.line % 2 else Outcome.SUCCEEDED) for r in claim.requests]

    stored = await hand.store(late, [claim.token])

    assert stored == {(claim.batch_id, f.request.line) for f in late if f.outcome is Outcome.SUCCEEDED}
    check_ranges(scenario.connection)
    check_counts(scenario.connection)


async def test_a_line_that_comes_twice_counts_once(scenario: Scenario, hand: Hand) -> None:
    """A worker that lost a lease and claimed the line again may bring both answers in one commit."""
    claim = await claimed(scenario, hand)
    finished = [hand.finish(r, text=text) for text in ("first", "second") for r in claim.requests]

    await hand.store(finished, [claim.token])

    assert scenario.counts(claim.batch_id).succeeded == len(claim.requests)
    assert {line["text"] for line in scenario.lines(claim.batch_id)} == {"first"}
    check_counts(scenario.connection)


async def test_nothing_is_stored_into_a_final_batch(scenario: Scenario, hand: Hand) -> None:
    """Its results may have been purged: a late success would be stored, and billed, a second time."""
    claim = await claimed(scenario, hand)
    finished = [hand.finish(r) for r in claim.requests]
    await hand.store(finished, [claim.token])
    with connect(scenario.dsn) as connection:
        assert finalise.step(connection, settings_for(scenario.dsn)) == 1
    scenario.connection.execute("DELETE FROM result WHERE batch_id = %s", (claim.batch_id,))

    assert await hand.store(finished) == set()

    assert scenario.lines(claim.batch_id) == []
    assert scenario.one("SELECT sum(requests) FROM ledger") == len(claim.requests)


async def runs(hand: Hand) -> tuple[int, int]:
    """How often this hand's connection ran STORE_WHOLE and STORE to their end."""
    query = """SELECT coalesce(sum(generic_plans) FILTER (WHERE statement LIKE '%sound%'), 0)::int,
                      coalesce(sum(generic_plans) FILTER (WHERE statement LIKE '%DISTINCT ON%'), 0)::int FROM pg_prepared_statements"""
    row = await (await (await hand.results.link.get()).execute(query, prepare=False)).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


async def test_what_nobody_disputes_is_stored_whole(scenario: Scenario, hand: Hand) -> None:
    claim = await claimed(scenario, hand)
    half = len(claim.requests) // 2

    await hand.store([hand.finish(r, Outcome.FAILED) for r in claim.requests[:half]])
    await hand.store([hand.finish(r) for r in claim.requests[half:]], [claim.token])

    assert await runs(hand) == (2, 0)
    assert (scenario.counts(claim.batch_id).succeeded, scenario.counts(claim.batch_id).failed) == (2, half)
    assert scenario.one("SELECT count(*) FROM lease") == 0
    check_counts(scenario.connection)


async def test_a_line_that_has_a_result_keeps_it(scenario: Scenario, hand: Hand) -> None:
    """All or nothing, and then line by line: the others of the commit are stored and counted, once."""
    claim = await claimed(scenario, hand)
    await hand.store([hand.finish(claim.requests[1], text="first")])

    stored = await hand.store([hand.finish(r, text="second") for r in claim.requests], [claim.token])

    assert await runs(hand) == (2, 1)
    assert len(stored) == len(claim.requests) - 1
    assert sorted(line["text"] for line in scenario.lines(claim.batch_id)) == ["first", "second", "second", "second"]
    check_ranges(scenario.connection)
    check_counts(scenario.connection)


async def test_a_lease_that_is_gone_takes_its_errors_only(scenario: Scenario, hand: Hand) -> None:
    """Two leases in one commit, one of them rescued: nothing is lost of the other, and its lease ends."""
    lost, kept = await claimed(scenario, hand), await claimed(scenario, hand)
    lapse(scenario.connection, lost.token)
    with connect(scenario.dsn) as connection:
        assert rescue.step(connection, settings_for(scenario.dsn)) == 1
    finished = [hand.finish(r, Outcome.FAILED) for claim in (lost, kept) for r in claim.requests]

    stored = await hand.store(finished, [lost.token, kept.token])

    assert stored == {(kept.batch_id, r.line) for r in kept.requests}
    assert scenario.one("SELECT count(*) FROM lease") == 0
    check_ranges(scenario.connection)
    check_counts(scenario.connection)


async def test_what_goes_back_goes_with_what_ended(scenario: Scenario, hand: Hand) -> None:
    claim = await claimed(scenario, hand)
    ended, rest = claim.requests[:2], claim.requests[2:]

    await hand.store([hand.finish(r) for r in ended], [claim.token], [Returned(claim.token, r.position) for r in rest])

    assert scenario.one("SELECT sum(n) FROM segment") == len(rest)
    check_ranges(scenario.connection)
    check_counts(scenario.connection)


async def test_a_heartbeat_in_between_changes_nothing(scenario: Scenario, hand: Hand) -> None:
    """The store waits for the heartbeat, and closes the lease as it is then."""
    claim = await claimed(scenario, hand)
    pid = (await hand.results.link.get()).info.backend_pid
    waits = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    with psycopg.connect(scenario.dsn) as beating:
        beating.execute(
            "UPDATE lease SET expires_at = expires_at + interval '1 minute' WHERE token = %s", (claim.token,)
        )
        storing = asyncio.create_task(hand.store([hand.finish(r) for r in claim.requests], [claim.token]))
        await until_async(lambda: scenario.one(waits, pid) is True)
        beating.commit()

    assert len(await storing) == len(claim.requests)

    assert await runs(hand) == (1, 0)
    assert scenario.one("SELECT count(*) FROM lease") == 0
    check_counts(scenario.connection)


async def test_two_models_of_one_batch_are_counted_apart(scenario: Scenario, hand: Hand) -> None:
    """A worker commits what it ran of both at once; the bill has a row for each."""
    other = scenario.one("INSERT INTO model (name) VALUES ('other-chat') RETURNING id")
    batch_id = scenario.batch([chat_line(f"r{n}", model=(MODEL, "other-chat")[n % 2]) for n in range(6)])
    claims = [await hand.claim(model_id, [batch_id], 64) for model_id in (scenario.models[MODEL], other)]
    finished: list[Finished] = [hand.finish(r) for claim in claims if claim is not None for r in claim.requests]

    await hand.store(finished, [claim.token for claim in claims if claim is not None])

    rows = scenario.connection.execute("SELECT model_id, requests FROM ledger ORDER BY model_id").fetchall()
    assert rows == [(scenario.models[MODEL], 3), (other, 3)]
    check_counts(scenario.connection)
