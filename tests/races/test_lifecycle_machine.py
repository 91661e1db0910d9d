"""Batches under any order of what may happen to them, on the real database, checked after every step."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties import Step, finalise, plan, rescue, settle
from scheduler.queue.work import Claim, Request
from slackwater.lifecycle import ALLOWED, BatchState, Outcome
from slackwater.storage.connections import connect
from tests.races.crew import Hand, lapse, together
from tests.races.invariants import check_counts, check_finals, check_ranges
from tests.races.test_claims import CANCEL
from tests.scenario import MODEL, Scenario, chat_line, settings_for

DUTIES: dict[str, Step] = {
    "plan": plan.step,
    "wake": rescue.wake_delayed,
    "rescue": rescue.step,
    "expire": settle.expire,
    "settle": settle.step,
    "finalise": finalise.step,
}
INDEX = st.integers(0, 1 << 10)
ENDS = {BatchState.COMPLETED, BatchState.FAILED, BatchState.EXPIRED, BatchState.CANCELLED}
MOST_ROUNDS = 4
"""Of 25 lives each: chance alone may leave out one of the endings in the first."""


class Lifecycle(RuleBasedStateMachine):
    """One database for all examples: each ends with everything final, and so begins with nothing to do."""

    scenario: ClassVar[Scenario]
    connections: ClassVar[list[Connection[TupleRow]]]
    runner: ClassVar[asyncio.Runner]
    hands: ClassVar[list[Hand]]
    endings: ClassVar[Counter[BatchState]]

    def __init__(self) -> None:
        super().__init__()
        self.settings = settings_for(self.scenario.dsn, lease_seconds=0.001)
        self.batches: dict[int, list[str]] = {}
        self.states: dict[int, BatchState] = {}
        self.finals: dict[int, Any] = {}
        self.results: dict[tuple[int, int], Any] = {}
        self.held: list[tuple[Hand, Claim, list[Request]]] = []
        self.lost: list[tuple[Hand, Claim, list[Request]]] = []

    @rule(good=st.lists(st.booleans(), min_size=1, max_size=8), on_invalid=st.sampled_from(["fail", "skip"]))
    def submit(self, good: list[bool], on_invalid: str) -> None:
        names = [f"r{n}" for n in range(len(good))]
        lines = [chat_line(n, model=MODEL if g else "unknown") for n, g in zip(names, good, strict=True)]
        batch_id = self.scenario.batch(lines, plan_now=False, on_invalid=on_invalid)
        self.batches[batch_id] = names
        self.states[batch_id] = BatchState.VALIDATING

    @precondition(lambda self: self.batches)
    @rule(hand=INDEX, most=st.integers(1, 8), retries=st.booleans())
    def claim(self, hand: int, most: int, retries: bool) -> None:
        self._claim(self.hands[hand % len(self.hands)], most, retries)

    @precondition(lambda self: self.held)
    @rule(which=INDEX, some=st.integers(0, 8), fails=st.sets(st.integers(0, 7)), closes=st.booleans())
    def finish(self, which: int, some: int, fails: set[int], closes: bool) -> None:
        """End some requests of a lease; close it, the rest going back, or keep it with the rest."""
        hand, claim, waiting = self.held.pop(which % len(self.held))
        self._end(hand, claim, waiting[:some], fails, waiting[some:] if closes else None)
        if not closes and waiting[some:]:
            self.held.append((hand, claim, waiting[some:]))
        elif not closes:
            self.runner.run(hand.give_back(claim, []))

    @precondition(lambda self: self.held)
    @rule(which=INDEX, delay=st.sampled_from([0.0, 3600.0]), burns=st.booleans())
    def hand_back(self, which: int, delay: float, burns: bool) -> None:
        hand, claim, waiting = self.held.pop(which % len(self.held))
        self.runner.run(hand.give_back(claim, waiting, delay=delay, burns=burns))

    @precondition(lambda self: self.held)
    @rule(which=INDEX, alone=st.booleans())
    def lose(self, which: int, alone: bool) -> None:
        """A worker falls silent; what it ran may still end."""
        hand, claim, waiting = self.held.pop(which % len(self.held))
        if alone:
            self.runner.run(hand.claims.mark_alone(claim.token))
        lapse(self.scenario.connection, claim.token)
        self.lost.append((hand, claim, waiting))

    @precondition(lambda self: self.lost)
    @rule(which=INDEX, some=st.integers(0, 8), fails=st.sets(st.integers(0, 7)))
    def rise(self, which: int, some: int, fails: set[int]) -> None:
        """The silent worker was only slow: it ends some, gives the rest back and closes."""
        hand, claim, waiting = self.lost.pop(which % len(self.lost))
        self._end(hand, claim, waiting[:some], fails, waiting[some:])

    @precondition(lambda self: self.batches)
    @rule(which=INDEX)
    def cancel(self, which: int) -> None:
        self.scenario.connection.execute(CANCEL, (self._batch(which),))

    @precondition(lambda self: self.batches)
    @rule(which=INDEX)
    def overrun(self, which: int) -> None:
        """The window of a batch ends."""
        self.scenario.connection.execute(
            "UPDATE batch SET expires_at = now() - interval '1 second' WHERE id = %s AND state IN (0, 1)",
            (self._batch(which),),
        )

    @rule()
    def time_passes(self) -> None:
        self.scenario.connection.execute("UPDATE segment SET run_at = now() - interval '1 second' WHERE state = 3")

    @rule(duty=st.sampled_from(sorted(DUTIES)))
    def do(self, duty: str) -> None:
        DUTIES[duty](self.connections[0], self.settings)

    @rule(first=st.sampled_from(sorted(DUTIES)), second=st.sampled_from(sorted(DUTIES)))
    def do_two_at_once(self, first: str, second: str) -> None:
        together(
            *[partial(DUTIES[d], c, self.settings) for d, c in zip((first, second), self.connections, strict=True)]
        )

    @invariant()
    def states_follow_the_graph(self) -> None:
        for batch_id, old in self.states.items():
            row = self.scenario.row(batch_id)
            new = BatchState(row["state"])
            assert new in reachable(old)
            self.states[batch_id] = new
            if new.is_final:
                assert self.finals.setdefault(batch_id, row) == row

    @invariant()
    def results_stay(self) -> None:
        query = "SELECT batch_id, line, outcome, md5(body), at FROM result WHERE batch_id = ANY (%s)"
        now = {tuple(r[:2]): r[2:] for r in self.scenario.connection.execute(query, (list(self.batches),)).fetchall()}
        assert now | self.results == now
        self.results = now

    @invariant()
    def nothing_is_doubled_or_forgotten(self) -> None:
        check_ranges(self.scenario.connection)
        check_counts(self.scenario.connection)
        check_finals(self.scenario.connection)

    def teardown(self) -> None:
        """Run everything to its end."""
        for _ in range(40):
            for _, claim, _ in self.held:
                lapse(self.scenario.connection, claim.token)
            self.held.clear()
            self.time_passes()
            for step in DUTIES.values():
                while step(self.connections[0], self.settings):
                    pass
            while self.batches and self._claim(self.hands[0], 8, True):
                hand, claim, waiting = self.held.pop()
                self._end(hand, claim, waiting, {3}, [])
            self.states_follow_the_graph()
            if all(state.is_final for state in self.states.values()):
                break
        self.results_stay()
        self.nothing_is_doubled_or_forgotten()
        for batch_id, names in self.batches.items():
            self._check_end(batch_id, names)

    def _check_end(self, batch_id: int, names: list[str]) -> None:
        row, state = self.scenario.row(batch_id), self.states[batch_id]
        events = self.scenario.connection.execute("SELECT type FROM event WHERE batch_id = %s", (batch_id,)).fetchall()
        assert events == [(f"batch.{state.word}",)]
        ids = [line["custom_id"] for line in self.scenario.lines(batch_id)]
        assert sorted(ids) == ([] if row["total"] == 0 else sorted(names))
        assert (row["total"] == 0) == (row["in_progress_at"] is None)
        self.endings[state] += 1

    def _claim(self, hand: Hand, most: int, retries: bool) -> bool:
        claim = self.runner.run(hand.claim(self.scenario.models[MODEL], list(self.batches), most, retries=retries))
        if claim is not None:
            self.held.append((hand, claim, list(claim.requests)))
        return claim is not None

    def _end(self, hand: Hand, claim: Claim, ended: list[Request], fails: set[int], back: list[Request] | None) -> None:
        """Store what ended; with `back`, close the lease and give that back."""
        finished = [hand.finish(r, Outcome.FAILED if n in fails else Outcome.SUCCEEDED) for n, r in enumerate(ended)]
        self.runner.run(hand.store(finished))
        if back is not None:
            self.runner.run(hand.give_back(claim, back))

    def _batch(self, which: int) -> int:
        return list(self.batches)[which % len(self.batches)]


def reachable(state: BatchState) -> set[BatchState]:
    """A step may pass through several states."""
    return {state}.union(*(reachable(after) for after in ALLOWED[state]))


def seen() -> set[BatchState]:
    return {state for state, times in Lifecycle.endings.items() if times}


def test_batches_live_as_promised(scenario: Scenario) -> None:
    Lifecycle.scenario = scenario
    Lifecycle.endings = Counter()
    with asyncio.Runner() as runner, connect(scenario.dsn) as one, connect(scenario.dsn) as two:
        Lifecycle.runner, Lifecycle.connections = runner, [one, two]
        Lifecycle.hands = [Hand(scenario.dsn, n, Random(n)) for n in (1, 2)]
        for _ in range(MOST_ROUNDS):
            run_state_machine_as_test(
                Lifecycle,
                settings=settings(
                    max_examples=25,
                    stateful_step_count=30,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                    print_blob=True,
                ),
            )
            if seen() == ENDS:
                break
        for hand in Lifecycle.hands:
            runner.run(hand.close())
    assert seen() == ENDS
