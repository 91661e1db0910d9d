"""The exhaustive check of the claim: under eight workers that misbehave in every known way, every line gets exactly one result."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event

import pytest
from psycopg import Connection, errors
from psycopg.rows import TupleRow

from scheduler.duties import Step, finalise, rescue, settle
from scheduler.queue.work import Claim, Finished, Request, Returned
from slackwater.lifecycle import BatchState, Outcome
from slackwater.storage.connections import connect
from tests.races.crew import Hand, Position, together
from tests.races.invariants import check_counts, check_finals, check_ranges
from tests.scenario import MODEL, Scenario, chat_line, settings_for

log = logging.getLogger(__name__)
WORKERS = 8
SEED = int(os.environ.get("SLACKWATER_TEST_SEED", "0")) or Random().randrange(1, 1 << 32)
CANCEL = "UPDATE batch SET state = 6, cancelling_at = now() WHERE id = %s AND state IN (0, 1)"


@pytest.mark.parametrize("most", [1, 7, 64, None])
def test_positions_are_taken_once(scenario: Scenario, most: int | None) -> None:
    """Eight workers claim, and only claim; some stop early, so that something is left: taken and ready are all, and disjoint."""
    log.warning("SLACKWATER_TEST_SEED=%d replays the decisions", SEED)
    lines = 250 if most == 1 else 3_000
    batches = [scenario.batch([chat_line(f"{b}-{n}") for n in range(lines)]) for b in range(2)]

    async def take(worker_id: int) -> Counter[Position]:
        hand = Hand(scenario.dsn, worker_id, Random(SEED + worker_id))
        order = hand.random.sample(batches, len(batches))
        for _ in range(hand.random.choice([5, 20, 10_000])):
            k = most or hand.random.randrange(1, 65)
            claim = await hand.claim(scenario.models[MODEL], order, k)
            if claim is None:
                break
            assert 1 <= claim.n <= k
            assert [r.position for r in claim.requests] == list(range(claim.first, claim.first + claim.n))
        await hand.close()
        return hand.taken

    taken: Counter[Position] = sum(together(*[partial(take, n) for n in range(1, WORKERS + 1)]), Counter())

    ready = Counter(
        (batch_id, position)
        for batch_id, first, n in scenario.connection.execute("SELECT batch_id, first, n FROM segment").fetchall()
        for position in range(first, first + n)
    )
    assert taken + ready == Counter((b, p) for b in batches for p in range(lines))
    check_ranges(scenario.connection)


@dataclass
class Chaos:
    """Workers until nothing is left, the duties beside them, and a watcher that asks for the invariants all the time."""

    scenario: Scenario
    batches: list[int]
    done: Event = field(default_factory=Event)
    happened: Counter[str] = field(default_factory=Counter)

    async def work(self, worker_id: int) -> Hand:
        hand = Hand(self.scenario.dsn, worker_id, Random(SEED + worker_id))
        late: list[tuple[Claim, list[Request]]] = []
        while not self.done.is_set():
            order = hand.random.sample(self.batches, len(self.batches))
            claim = await hand.claim(
                self.scenario.models[MODEL], order, hand.random.randrange(1, 65), retries=hand.random.random() < 0.9
            )
            if claim is None:
                await asyncio.sleep(0.02)
            else:
                await self._use(hand, claim, late)
            if late and (claim is None or hand.random.random() < 0.3):
                await self._rise(hand, *late.pop(0))
        for zombie in late:
            await self._rise(hand, *zombie)
        await hand.close()
        return hand

    async def _use(self, hand: Hand, claim: Claim, late: list[tuple[Claim, list[Request]]]) -> None:
        """Do one of the things that workers do with a claim."""
        requests = hand.random.sample(list(claim.requests), len(claim.requests))
        some = requests[: hand.random.randrange(len(requests) + 1)]
        rest = requests[len(some) :]
        what = hand.random.choices(["finish", "vanish", "give back", "flush"], [55, 12, 20, 13])[0]
        self.happened[what] += 1
        if what == "vanish":
            await hand.store(self._answers(hand, some))
            hand.back.update((claim.batch_id, r.position) for r in rest)
            await hand.lapse(claim)
            late.append((claim, rest))
        elif what == "give back":
            await hand.store(self._answers(hand, some))
            await hand.give_back(claim, rest, delay=hand.random.choice([0, 0.05]), burns=hand.random.random() < 0.3)
        elif what == "flush":
            await hand.store(self._answers(hand, some))
            await hand.store(self._answers(hand, rest), [claim.token])
        else:
            await hand.store(self._answers(hand, requests), [claim.token])

    async def _rise(self, hand: Hand, claim: Claim, unfinished: list[Request]) -> None:
        """A zombie: it ends some, gives back the rest and closes, long after its lease was over, whether it was taken back or not."""
        some = unfinished[: hand.random.randrange(len(unfinished) + 1)]
        parts = [Returned(claim.token, r.position, 1, 0.0, r.attempts, r.deferrals) for r in unfinished[len(some) :]]
        stored = await hand.store(self._answers(hand, some), [claim.token], parts)
        self.happened["late and stored"] += len(stored)
        self.happened["late and dropped"] += len(some) - len(stored)

    def _answers(self, hand: Hand, requests: list[Request]) -> list[Finished]:
        return [hand.finish(r, Outcome.FAILED if hand.random.random() < 0.1 else Outcome.SUCCEEDED) for r in requests]

    def duty(self, step: Step, name: str) -> None:
        settings = settings_for(self.scenario.dsn)
        with connect(self.scenario.dsn) as connection:
            while not self.done.wait(0.03):
                try:
                    self.happened[name] += step(connection, settings)
                except errors.DeadlockDetected:
                    self.happened["deadlock"] += 1

    def watch(self) -> None:
        """Look until every batch is final; the invariants hold at every look."""
        try:
            with connect(self.scenario.dsn) as connection:
                for share, cancelled in ((0.1, self.batches[1]), (0.3, self.batches[2])):
                    wait_for(connection, partial(is_done, batch_id=self.batches[0], share=share))
                    self.happened["cancel"] += connection.execute(CANCEL, (cancelled,)).rowcount
                wait_for(connection, all_final)
        finally:
            self.done.set()


def is_done(connection: Connection[TupleRow], *, batch_id: int, share: float) -> bool:
    query = (
        "SELECT count(*) >= %(share)s * (SELECT total FROM batch WHERE id = %(id)s) FROM result WHERE batch_id = %(id)s"
    )
    row = connection.execute(query, {"id": batch_id, "share": share}).fetchone()
    return row is not None and bool(row[0])


def all_final(connection: Connection[TupleRow]) -> bool:
    row = connection.execute("SELECT bool_and(state IN (3, 5, 7)) FROM batch").fetchone()
    return row is not None and bool(row[0])


def wait_for(connection: Connection[TupleRow], is_so: Callable[[Connection[TupleRow]], bool]) -> None:
    while not is_so(connection):
        check_ranges(connection)
        check_counts(connection)


def test_every_line_ends_once_whatever_workers_do(scenario: Scenario) -> None:
    log.warning("SLACKWATER_TEST_SEED=%d replays the decisions", SEED)
    lines = 4_000
    chaos = Chaos(scenario, [scenario.batch([chat_line(f"{b}-{n}") for n in range(lines)]) for b in range(4)])
    duties = (rescue.step, rescue.wake_delayed, settle.step, settle.expire, finalise.step, rescue.step, finalise.step)

    results = together(
        *[partial(chaos.work, n) for n in range(1, WORKERS + 1)],
        *[partial(chaos.duty, step, step.__qualname__ + step.__module__) for step in duties],
        chaos.watch,
    )

    log.warning("happened: %s", dict(chaos.happened))
    hands: list[Hand] = results[:WORKERS]
    taken = sum((h.taken for h in hands), Counter())
    back = sum((h.back for h in hands), Counter())
    states = {b: BatchState(scenario.row(b)["state"]) for b in chaos.batches}
    assert set(states.values()) == {BatchState.COMPLETED, BatchState.CANCELLED}
    assert all(taken[b, p] <= 1 + back[b, p] for b in chaos.batches for p in range(lines))
    check_counts(scenario.connection)
    check_finals(scenario.connection)
    for batch_id in chaos.batches:
        ids = [line["custom_id"] for line in scenario.lines(batch_id)]
        assert sorted(ids) == sorted(f"{chaos.batches.index(batch_id)}-{n}" for n in range(lines))
    assert (
        min(
            chaos.happened[w]
            for w in ("finish", "vanish", "give back", "flush", "late and stored", "late and dropped", "cancel")
        )
        > 0
    )
    assert chaos.happened["deadlock"] == 0
    assert scenario.one("SELECT count(*) FROM segment") == scenario.one("SELECT count(*) FROM lease") == 0
