"""Every duty run by two processes at the same moment on the same work, and the ends of a batch racing on one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection, errors
from psycopg.rows import TupleRow

from scheduler.duties import Step, finalise, plan, purge, rescue, settle
from scheduler.queue.status import Status
from scheduler.queue.work import Claim
from slackwater import ids
from slackwater.lifecycle import BatchState, Outcome
from slackwater.storage.connections import connect
from tests.races.crew import Hand, lapse, together
from tests.races.invariants import check_counts, check_finals, check_ranges, rows
from tests.races.test_claims import CANCEL
from tests.scenario import MODEL, Scenario, chat_line, settings_for

ROUNDS = 25
PAST = timedelta(seconds=-1)
ENDS_EARLY = {"expire": BatchState.EXPIRED, "cancel": BatchState.CANCELLED}


class Twice:
    """Two processes' connections, and the same duty on both at once."""

    def __init__(self, scenario: Scenario) -> None:
        self.settings = settings_for(scenario.dsn, lease_seconds=0.001)
        self.connections = [connect(scenario.dsn) for _ in range(2)]

    def __call__(self, step: Step) -> list[int]:
        return together(*[partial(step, c, self.settings) for c in self.connections])

    def one(self, step: Step, which: int = 0) -> int:
        return step(self.connections[which], self.settings)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


@pytest.fixture
def twice(scenario: Scenario) -> Any:
    twice = Twice(scenario)
    yield twice
    twice.close()


def lines(n: int, mark: str = "r") -> list[bytes]:
    return [chat_line(f"{mark}{i}") for i in range(n)]


async def claim_all(
    scenario: Scenario, batch_ids: list[int], *, most: int = 64, worker_id: int = 1
) -> tuple[Hand, list[Claim]]:
    hand = Hand(scenario.dsn, worker_id, Random(worker_id))
    claims: list[Claim] = []
    for model_id in scenario.models.values():
        while (claim := await hand.claim(model_id, batch_ids, most)) is not None:
            claims.append(claim)
    return hand, claims


async def answer_all(scenario: Scenario, batch_ids: list[int], *, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    hand, claims = await claim_all(scenario, batch_ids)
    for claim in claims:
        await hand.store([hand.finish(r, outcome) for r in claim.requests], [claim.token])
    await hand.close()


def whole(scenario: Scenario) -> None:
    check_ranges(scenario.connection)
    check_counts(scenario.connection)
    check_finals(scenario.connection)


def test_planning_twice_plans_once(scenario: Scenario, twice: Twice) -> None:
    scenario.models["other"] = scenario.one("INSERT INTO model (name) VALUES ('other') RETURNING id")
    for n in range(ROUNDS):
        orders = (MODEL, "other"), ("other", MODEL)
        batches = [
            scenario.batch([chat_line(f"{n}-{i}", model=o[i % 2]) for i in range(4)], plan_now=False) for o in orders
        ]
        while any(twice(plan.step)):
            pass
        assert {scenario.row(b)["state"] for b in batches} == {BatchState.IN_PROGRESS}
        for batch_id in batches:
            assert scenario.one("SELECT sum(n) FROM segment WHERE batch_id = %s", batch_id) == 4
    whole(scenario)


def test_planning_races_with_a_cancel(scenario: Scenario, twice: Twice) -> None:
    for n in range(ROUNDS):
        batch_id = scenario.batch(lines(3, f"{n}-"), plan_now=False)
        together(partial(twice.one, plan.step), partial(twice.connections[1].execute, CANCEL, (batch_id,)))
        assert scenario.row(batch_id)["state"] == BatchState.CANCELLING
        twice(settle.step)
        twice(finalise.step)
        row = scenario.row(batch_id)
        assert (row["state"], row["total"]) in ((BatchState.CANCELLED, 0), (BatchState.CANCELLED, 3))
    whole(scenario)


def test_refusing_twice_tells_it_once(scenario: Scenario, twice: Twice) -> None:
    for _ in range(ROUNDS):
        batch_id = scenario.batch([b"{}"], plan_now=False)
        twice(plan.step)
        assert scenario.row(batch_id)["state"] == BatchState.FAILED
    assert scenario.one("SELECT count(*) FROM event WHERE type = 'batch.failed'") == ROUNDS


async def test_rescuing_twice_takes_each_lease_back_once(scenario: Scenario, twice: Twice) -> None:
    for n in range(ROUNDS):
        batch_id = scenario.batch(lines(40, f"{n}-"))
        hand, claims = await claim_all(scenario, [batch_id], most=3)
        lapse(scenario.connection, *[c.token for c in claims])
        assert sum(await asyncio.to_thread(twice, rescue.step)) == len(claims)
        whole(scenario)
        await hand.close()


async def test_crashes_do_not_deadlock(scenario: Scenario, twice: Twice) -> None:
    """Two rescuers and a settler store errors into the same batches, in whatever order the leases ran out."""
    random = Random(5)
    for n in range(ROUNDS):
        batches = [scenario.batch(lines(20, f"{n}-{b}-")) for b in range(2)]
        hand, claims = await claim_all(scenario, batches, most=1)
        scenario.connection.execute("UPDATE lease SET is_alone = true, deaths = 1")
        for claim in random.sample(claims, len(claims)):
            lapse(scenario.connection, claim.token)
        scenario.connection.execute("UPDATE batch SET expires_at = now() WHERE id = ANY (%s)", (batches,))
        with connect(scenario.dsn) as third:
            settle.expire(third, twice.settings)
            await asyncio.to_thread(
                together,
                *[partial(twice.one, rescue.step, i) for i in range(2)],
                partial(settle.step, third, twice.settings),
            )
        whole(scenario)
        await hand.close()


async def test_waking_races_with_the_end_of_a_batch(scenario: Scenario, twice: Twice) -> None:
    for n in range(ROUNDS):
        batch_id = scenario.batch(lines(40, f"{n}-"))
        hand, claims = await claim_all(scenario, [batch_id], most=1)
        for claim in claims:
            await hand.give_back(claim, claim.requests, delay=hand.random.random() / 1000)
        scenario.connection.execute(CANCEL, (batch_id,))
        await asyncio.to_thread(together, partial(twice.one, rescue.wake_delayed), partial(twice.one, settle.step, 1))
        await asyncio.to_thread(twice, finalise.step)
        assert scenario.row(batch_id)["state"] == BatchState.CANCELLED
        whole(scenario)
        await hand.close()


def test_settling_twice_fills_each_line_once(scenario: Scenario, twice: Twice) -> None:
    for n in range(ROUNDS):
        batch_id = scenario.batch(lines(30, f"{n}-"), window=PAST)
        assert sum(twice(settle.expire)) == 1
        assert sum(twice(settle.step)) >= 30
        assert sum(twice(finalise.step)) == 1
        assert scenario.row(batch_id)["state"] == BatchState.EXPIRED
        assert scenario.counts(batch_id).expired == 30
    whole(scenario)


async def test_finalising_twice_tells_it_once(scenario: Scenario, twice: Twice) -> None:
    for n in range(ROUNDS):
        batch_id = scenario.batch(lines(3, f"{n}-"))
        await answer_all(scenario, [batch_id])
        assert sum(await asyncio.to_thread(twice, finalise.step)) == 1
        assert scenario.row(batch_id)["state"] == BatchState.COMPLETED
    whole(scenario)


async def test_finalising_races_with_a_zombie(scenario: Scenario, twice: Twice) -> None:
    """Both answers were there before the batch was done: the later one changes nothing, wherever it falls."""
    for n in range(ROUNDS):
        batch_id = scenario.batch(lines(3, f"{n}-"))
        zombie, (lost,) = await claim_all(scenario, [batch_id], worker_id=2)
        await zombie.close()
        lapse(scenario.connection, lost.token)
        await asyncio.to_thread(twice.one, rescue.step)
        await answer_all(scenario, [batch_id])
        before = scenario.lines(batch_id)

        async def rise(claim: Claim = lost) -> set[tuple[int, int]]:
            hand = Hand(scenario.dsn, 2, Random(2))
            stored = await hand.store([hand.finish(r, text="late") for r in claim.requests], [claim.token])
            await hand.close()
            return stored

        _, stored = await asyncio.to_thread(together, partial(twice.one, finalise.step), rise)
        assert stored == set()
        assert scenario.lines(batch_id) == before
    whole(scenario)


async def test_the_end_of_a_batch_races_with_its_leases(scenario: Scenario, twice: Twice) -> None:
    """Finalising, a heartbeat and a release lock the same leases: nobody waits in a circle, and nothing is left behind."""
    for n in range(ROUNDS):
        batch_id = scenario.batch(lines(60, f"{n}-"))
        hand, claims = await claim_all(scenario, [batch_id], most=1)
        await hand.store([hand.finish(r) for c in claims for r in c.requests])
        await hand.close()
        tokens = [c.token for c in claims]

        async def close(order: list[UUID]) -> None:
            mine = Hand(scenario.dsn, 1, Random(1))
            await mine.results.link.get()
            await mine.store(closed=order)
            await mine.close()

        async def beat(order: list[UUID]) -> None:
            status = Status.on(scenario.dsn, 1, 1)
            for _ in range(5):
                await status.heartbeat(order, 60.0)
            await status.close()

        random = Random(n)
        orders = [random.sample(tokens, len(tokens)) for _ in range(2)]
        await asyncio.to_thread(
            together, partial(close, orders[0]), partial(beat, orders[1]), partial(twice.one, finalise.step)
        )
        assert scenario.row(batch_id)["state"] == BatchState.COMPLETED
    whole(scenario)


@pytest.mark.parametrize("early", [("expire",), ("cancel",), ("expire", "cancel")], ids=" and ".join)
async def test_completion_cancel_and_expiry_race_on_one_line(
    scenario: Scenario, twice: Twice, early: tuple[str, ...]
) -> None:
    """The last line is stored while the batch ends early: one result, one end, one event, in whatever order."""
    ends = set()
    others = [connect(scenario.dsn) for _ in early]
    for n in range(2 * ROUNDS):
        batch_id = scenario.batch(lines(1, f"{n}-"))
        hand, (claim,) = await claim_all(scenario, [batch_id])
        await hand.close()

        async def answer(claim: Claim = claim) -> None:
            mine = Hand(scenario.dsn, 1, Random(1))
            await mine.results.link.get()
            await mine.store([mine.finish(r) for r in claim.requests], [claim.token])
            await mine.close()

        def end_early(kind: str, connection: Connection[TupleRow], batch_id: int = batch_id) -> None:
            if kind == "cancel":
                connection.execute(CANCEL, (batch_id,))
            else:
                connection.execute(
                    "UPDATE batch SET expires_at = now() - interval '1 second' WHERE id = %s", (batch_id,)
                )
                settle.expire(connection, twice.settings)
            settle.step(connection, twice.settings)

        actions: list[Callable[[], Any]] = [
            answer,
            *[partial(end_early, kind, connection) for kind, connection in zip(early, others, strict=True)],
            partial(twice.one, finalise.step, 1),
        ]
        await asyncio.to_thread(together, *actions)
        for step in (settle.expire, settle.step, finalise.step):
            await asyncio.to_thread(twice, step)
        state = BatchState(scenario.row(batch_id)["state"])
        assert state.is_final
        ends.add(state)
        whole(scenario)
    for connection in others:
        connection.close()
    assert ends <= {BatchState.COMPLETED} | {ENDS_EARLY[kind] for kind in early}


async def test_purging_twice_and_while_it_is_read(scenario: Scenario, twice: Twice) -> None:
    """A reader of a batch that is being purged sees pages that shrink, and no error; partitions that are read stay."""
    for n in range(5):
        batch_id = scenario.batch(lines(300, f"{n}-"))
        await answer_all(scenario, [batch_id])
        await asyncio.to_thread(twice, finalise.step)
        scenario.connection.execute(
            "UPDATE batch SET completed_at = completed_at - interval '1 hour' WHERE id = %s", (batch_id,)
        )
        scenario.connection.execute("UPDATE file SET deleted_at = now() WHERE batch_id = %s", (batch_id,))

        def read(batch_id: int = batch_id) -> None:
            with connect(scenario.dsn) as connection:
                seen = 301
                while seen:
                    left = len(
                        connection.execute("SELECT line FROM result WHERE batch_id = %s", (batch_id,)).fetchall()
                    )
                    assert left <= seen
                    seen = left

        await asyncio.to_thread(together, *[partial(twice.one, purge.step, i) for i in range(2)], read)
        assert scenario.one("SELECT count(*) FROM request WHERE batch_id = %s", batch_id) == 0
    assert rows(scenario.connection, "SELECT 1 FROM result") == []


def test_a_partition_that_is_written_to_is_not_dropped(scenario: Scenario, twice: Twice) -> None:
    """The purger sees the partition empty while the writer has not committed: the row stays."""
    week = 3
    old = ids.first_of_week(week)
    scenario.connection.execute("SELECT make_partitions(%s)", (old,))
    writer, purger = twice.connections
    drop = "SELECT drop_empty_partitions(%s)"
    with writer.transaction():
        writer.execute("INSERT INTO request VALUES (1, %s, 0, 1, 0, 0, 1, 1, 1, 'a')", (old,))
        assert purger.execute(drop, (week,)).fetchone() == (False,)

    assert purger.execute(drop, (week,)).fetchone() == (False,)
    assert scenario.one("SELECT count(*) FROM request") == 1


def test_partitions_are_made_and_dropped_twice(scenario: Scenario, twice: Twice) -> None:
    for week in range(3, 3 + ROUNDS):
        value = (ids.first_of_week(week),)
        together(*[partial(c.execute, "SELECT make_partitions(%s)", value) for c in twice.connections])
        together(*[partial(c.execute, "SELECT drop_empty_partitions(%s)", (week,)) for c in twice.connections])
        twice.connections[0].execute("SELECT drop_empty_partitions(%s)", (week,))
        assert scenario.one("SELECT to_regclass('request_w' || lpad(%s::text, 4, '0'))", week) is None


@pytest.mark.parametrize("n", [0, 1, -1])
def test_a_file_that_is_being_purged_is_not_run_in_part(scenario: Scenario, twice: Twice, n: int) -> None:
    """It was deleted while the batch was made: a batch of the lines that are left would be another one."""
    file_id = scenario.upload(b"\n".join(lines(10)), chunk=400)
    last = scenario.one("SELECT max(n) FROM file_chunk WHERE file_id = %s", file_id)
    batch_id = scenario.batch(lines(1), plan_now=False)
    scenario.connection.execute("UPDATE batch SET file_id = %s WHERE id = %s", (file_id, batch_id))
    scenario.connection.execute("DELETE FROM file_chunk WHERE file_id = %s AND n = %s", (file_id, last if n < 0 else n))

    twice(plan.step)

    assert last > 1
    assert scenario.row(batch_id)["state"] == BatchState.FAILED
    assert scenario.one("SELECT count(*) FROM request") == 0


async def test_a_batch_that_always_fails_holds_up_no_other(scenario: Scenario, twice: Twice) -> None:
    ill, well = scenario.batch(lines(2)), scenario.batch(lines(2))
    await answer_all(scenario, [ill, well])
    scenario.connection.execute(
        "INSERT INTO output_index VALUES (%s, %s, 0, 0, 0, '{}', '{}')", (scenario.tenant_id, ill)
    )

    with pytest.raises(errors.UniqueViolation):
        twice.one(finalise.step)

    assert scenario.row(ill)["state"] == BatchState.FINALIZING
    assert scenario.row(well)["state"] == BatchState.COMPLETED
