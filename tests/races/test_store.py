"""What STORE and RELEASE promise where a lease is over, a line comes twice, or the batch is final."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from scheduler.duties import finalise, rescue
from scheduler.queue.work import Claim
from slackwater.lifecycle import Outcome
from slackwater.storage.connections import connect
from tests.races.crew import Hand, lapse
from tests.races.invariants import check_counts, check_ranges
from tests.scenario import MODEL, Scenario, chat_line, settings_for


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
