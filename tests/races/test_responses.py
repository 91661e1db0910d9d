"""A response whose answer comes at the moment of its cancel has one end, and whoever looks sees that end only."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from random import Random
from threading import Barrier, Event
from time import sleep

from scheduler.duties import finalise, settle
from scheduler.queue.work import Finished, Request
from slackwater import ids
from slackwater.lifecycle import BatchState
from slackwater.reader.output_line import answer_line, read_answer
from slackwater.storage import batches, responses
from slackwater.storage.connections import connect
from slackwater.storage.database import Database
from slackwater.wire.lines import line_id
from slackwater.wire.response import ENDPOINT
from slackwater.wire.response_request import request_line
from tests.races import invariants
from tests.races.crew import Hand, together
from tests.scenario import MODEL, Scenario, settings_for
from tests.waiting import until
from workers.engines.echo import response

COUNT = 30
TERMINAL = {"completed", "failed", "cancelled", "incomplete"}


@dataclass
class Race:
    """One response after the other is answered and cancelled at the same moment; the duties and a reader run beside."""

    scenario: Scenario
    rows: dict[str, int] = field(default_factory=dict)
    starts: Barrier = field(default_factory=lambda: Barrier(2))
    over: Event = field(default_factory=Event)
    seen: dict[str, list[str]] = field(default_factory=dict)
    raced: str = ""

    def make(self) -> None:
        for _ in range(COUNT):
            public_id = ids.new("resp_")
            body = json.dumps({"model": MODEL, "input": "hi", "background": True}).encode()
            asked = json.dumps({"model": MODEL})
            self.rows[public_id] = self.scenario.batch(
                [request_line(public_id, body)], public_id=public_id, response=asked, endpoint=ENDPOINT, plan_now=False
            )
        self.scenario.plan()

    async def answer(self) -> None:
        hand = Hand(self.scenario.dsn, 1, Random(1))
        model_id = self.scenario.models[MODEL]
        for batch_id in self.rows.values():
            claim = await hand.claim(model_id, [batch_id], 1)
            await asyncio.to_thread(self.starts.wait)
            if claim is not None:
                await hand.store([answered(hand, request) for request in claim.requests], closed=[claim.token])
        await hand.close()

    async def cancel(self) -> None:
        database = Database(self.scenario.dsn, pool_size=1)
        for n, (public_id, batch_id) in enumerate(self.rows.items()):
            self.raced = public_id
            await asyncio.to_thread(self.starts.wait)
            await asyncio.sleep((n % 10) / 200)
            if n == COUNT - 1:
                await asyncio.to_thread(self.until_completed, batch_id)
            async with database.tenant(self.scenario.tenant_id) as connection:
                await batches.stop(connection, self.scenario.tenant_id, public_id)
        await database.close()

    def until_completed(self, batch_id: int) -> None:
        until(lambda: self.scenario.row(batch_id)["state"] == BatchState.COMPLETED)

    def end(self) -> None:
        """The duties, until every response has ended; they come late, so that there is a while between an answer and its end."""
        random = Random(2)
        settings = settings_for(self.scenario.dsn)
        with connect(self.scenario.dsn) as connection:
            while self.scenario.one("SELECT count(*) FROM batch WHERE state NOT IN (3, 7)"):
                settle.step(connection, settings)
                sleep(random.random() / 25)
                finalise.step(connection, settings)
        self.over.set()

    async def watch(self) -> None:
        database = Database(self.scenario.dsn, pool_size=1)
        is_last = False
        while not is_last:
            is_last = self.over.is_set()
            for public_id in self.rows if is_last else [self.raced or next(iter(self.rows))]:
                async with database.tenant(self.scenario.tenant_id) as connection:
                    found = await responses.find(connection, self.scenario.tenant_id, public_id)
                    assert found is not None
                    shown = await responses.shown(connection, found)
                told = self.seen.setdefault(public_id, [])
                state = json.dumps({name: shown[name] for name in ("status", "output", "completed_at")})
                if not told or told[-1] != state:
                    told.append(state)
        await database.close()


def answered(hand: Hand, request: Request) -> Finished:
    body = answer_line(
        line_id(request.batch_id, request.line), request.custom_id, None, read_answer(200, response(MODEL, "hi", 3))
    )
    return replace(hand.finish(request), line=body)


def test_an_answer_and_a_cancel_at_once_give_one_end(scenario: Scenario) -> None:
    race = Race(scenario)
    race.make()
    together(race.answer, race.cancel, race.end, race.watch)

    for public_id, batch_id in race.rows.items():
        statuses = [json.loads(state)["status"] for state in race.seen[public_id]]
        assert statuses[-1] in ("completed", "cancelled")
        assert [status for status in statuses if status in TERMINAL] == statuses[-1:], statuses
        told = scenario.connection.execute("SELECT type FROM event WHERE batch_id = %s", (batch_id,)).fetchall()
        assert told == [(f"response.{statuses[-1]}",)]
    ends = {json.loads(states[-1])["status"] for states in race.seen.values()}  # the last cancel came after the end
    assert ends == {"completed", "cancelled"}, "no race: one side always won"
    invariants.check_finals(scenario.connection)
    invariants.check_counts(scenario.connection)
