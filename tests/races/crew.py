"""Workers for race tests: they claim and store through the product's own calls, and misbehave as told, from a seed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Barrier, Thread
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.queue.claims import Claims
from scheduler.queue.results import Results
from scheduler.queue.work import Claim, Commit, Finished, Request, Returned
from slackwater.lifecycle import Outcome
from slackwater.pricing import cost
from slackwater.reader.usage import Usage

Position = tuple[int, int]
LEASE_SECONDS = 60.0
# Its time is over, and a call was not answered.
LAPSE = "UPDATE lease SET expires_at = now() - interval '1 second', called_at = now() - interval '1 minute' WHERE token = ANY (%s)"


@dataclass
class Hand:
    """One worker with its own connections. It remembers what it took, and what went back."""

    dsn: str
    worker_id: int
    random: Random
    taken: Counter[Position] = field(default_factory=Counter)
    back: Counter[Position] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.claims = Claims.on(self.dsn, self.worker_id, LEASE_SECONDS)
        self.results = Results.on(self.dsn, self.worker_id, 1)

    async def claim(self, model_id: int, batch_ids: Sequence[int], most: int, *, retries: bool = True) -> Claim | None:
        claim = await self.claims.claim(model_id, batch_ids, most=most, retries=retries)
        if claim is not None:
            self.taken.update((claim.batch_id, r.position) for r in claim.requests)
        return claim

    def finish(self, request: Request, outcome: Outcome = Outcome.SUCCEEDED, text: str = "") -> Finished:
        """A made-up answer; its usage depends on the seed."""
        prompt = self.random.randrange(200)
        cached = self.random.choice([None, 0, prompt // 2])
        usage = Usage(prompt, self.random.randrange(50), cached)
        line = f'{{"custom_id":"{request.custom_id}","worker":{self.worker_id},"text":"{text}"}}\n'
        http = 200 if outcome is Outcome.SUCCEEDED else 400
        return Finished(request, outcome, http, usage, cost(usage, request.price), line.encode())

    async def store(
        self, finished: Sequence[Finished] = (), closed: Sequence[UUID] = (), returned: Sequence[Returned] = ()
    ) -> set[tuple[int, int]]:
        return await self.results.commit(Commit(finished, closed, returned))

    async def give_back(
        self, claim: Claim, requests: Sequence[Request], *, delay: float = 0.0, burns: bool = False
    ) -> None:
        """Close a lease; `requests` of it go back unfinished."""
        self.back.update((claim.batch_id, r.position) for r in requests)
        parts = [
            Returned(claim.token, r.position, 1, delay, r.attempts + burns, r.deferrals + (delay > 0)) for r in requests
        ]
        await self.store(closed=[claim.token], returned=parts)

    async def lapse(self, claim: Claim) -> None:
        """This worker falls silent about a claim: its lease is over."""
        await (await self.claims.link.get()).execute(LAPSE, ([claim.token],))

    async def close(self) -> None:
        await self.claims.close()
        await self.results.close()


def lapse(connection: Connection[TupleRow], *tokens: UUID) -> None:
    """The worker of these leases is gone: they are over."""
    connection.execute(LAPSE, (list(tokens),))


@dataclass
class Together:
    """Runs functions in threads that start at the same moment, and raises what any of them raised."""

    errors: list[BaseException] = field(default_factory=list)

    def run(self, *actions: Any) -> list[Any]:
        """Each action is called without arguments, or awaited in a loop of its own; returns what they returned."""
        results: list[Any] = [None] * len(actions)
        barrier = Barrier(len(actions))
        threads = [Thread(target=self._one, args=(n, a, results, barrier)) for n, a in enumerate(actions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        return results

    def _one(self, n: int, action: Any, results: list[Any], barrier: Barrier) -> None:
        try:
            barrier.wait()
            value = action()
            results[n] = asyncio.run(value) if isinstance(value, Coroutine) else value
        except BaseException as error:
            self.errors.append(error)


def together(*actions: Any) -> list[Any]:
    return Together().run(*actions)
