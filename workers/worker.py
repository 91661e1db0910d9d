"""The worker: four times a second sample and decide, claim what will start soon, run it, store it, hand back what must yield."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
from psycopg import Error

from scheduler.admission import Admit, Hold, Policy
from scheduler.headroom import Headroom
from scheduler.queue.claims import Claims
from scheduler.queue.results import Results
from scheduler.queue.status import Status
from slackwater.errors import SlackwaterError
from slackwater.lifecycle import BatchState
from slackwater.loop import Loop
from slackwater.settings import Settings
from workers.deciding import Deciding
from workers.engines.base import Engine
from workers.feeding import Feeding, Waiting
from workers.held import Held
from workers.instance import Instance, policy_of
from workers.line import Line
from workers.outgoing import Outgoing
from workers.runs import Runs
from workers.signals import Signals

log = structlog.get_logger()
EVERY_SECONDS: Final = 0.25
# A decision follows each sample of the engine; this late it is made without one.
DECIDE_WITHIN_SECONDS: Final = 0.35


@dataclass
class Worker:
    """Serves one instance. `run` returns when `stopping` was set and everything held is stored or handed back.

    `headroom_for` makes what decides from the instance's policy; only a measurement puts something else in its place.
    """

    settings: Settings
    instance: Instance
    engine: Engine
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    headroom_for: Callable[[Policy], Headroom] = Headroom

    def __post_init__(self) -> None:
        settings, worker_id = self.settings, self.instance.worker_id
        self.claims = Claims.on(settings.dsn, worker_id, settings.lease_seconds)
        self.status = Status.on(settings.dsn, worker_id, self.instance.id)
        self.outgoing = Outgoing(Results.on(settings.dsn, worker_id, self.instance.id))
        self.line = Line(self.claims)
        self.held = Held()
        self.runs = Runs(self.engine, self.held, self.outgoing, self.status, settings.max_attempts, self._ended)
        self.signals = Signals(self.engine, self.instance, self._sampled)
        self.waiting = Waiting(self.runs)
        self.headroom = self.headroom_for(policy_of(settings, self.instance))
        self.deciding = Deciding(
            self.headroom, self.signals, self.status, self.line, self.runs, self.waiting.count, self._decided
        )
        self.feeding = Feeding(
            self.waiting, self.deciding, self.line, self.claims, self.runs, self.outgoing,
            settings.claim_horizon_seconds, self.stopping,
        )  # fmt: skip
        self._again: asyncio.TimerHandle | None = None
        self.decide = Loop("decide", self.deciding.step, DECIDE_WITHIN_SECONDS)
        self.feed = Loop("feed", self.feeding.step, EVERY_SECONDS)

    async def run(self) -> None:
        """Work until told to stop, then finish or hand back within the grace period.

        Raises:
            SlackwaterError: a part that runs as long as the worker has ended; why is in the log. What could be handed back was.
        """
        storing = asyncio.create_task(self.outgoing.run())
        halt = asyncio.Event()
        heartbeat = Loop("heartbeat", self._heartbeat, min(1.0, self.settings.lease_seconds / 4))
        feeding = asyncio.create_task(self.feed.run(self.stopping))
        others = [
            asyncio.create_task(self.decide.run(halt)),
            asyncio.create_task(heartbeat.run(halt)),
            asyncio.create_task(self.signals.sample(halt)),
        ]
        await self._until_told_or_broken([storing, feeding, *others])
        await self._wind_down(feeding)
        halt.set()
        ends = await asyncio.gather(feeding, *others, return_exceptions=True)
        self.outgoing.end(self.settings.grace_seconds)
        ends += await asyncio.gather(storing, return_exceptions=True)
        await self._leave()
        broken = [end for end in ends if isinstance(end, BaseException)]
        for end in broken:
            log.error("worker.broken", exc_info=end)
        if broken:
            raise SlackwaterError("A part of the worker has broken; the log says where.")

    async def _until_told_or_broken(self, parts: list[asyncio.Task[None]]) -> None:
        """A part that ends by itself takes the worker with it: without one, it would hold its leases for ever, and answer nothing."""
        told = asyncio.create_task(self.stopping.wait())
        await asyncio.wait([told, *parts], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not self.stopping.is_set():
            self.stopping.set()

    def look_again(self) -> None:
        """There may be new work: decide and claim at once."""
        self.line.look_again()
        self.decide.wake.set()

    def _sampled(self) -> None:
        """What the engine says is new: decide on it."""
        self.decide.wake.set()

    def _ended(self) -> None:
        """A slot is free."""
        self.feed.wake.set()

    def _decided(self, decision: Admit | Hold) -> None:
        """Give up what a hold says: what waits, what has no token yet, and in an emergency what decodes."""
        if isinstance(decision, Hold):
            if decision.hand_back:
                self.waiting.hand_back()
            newest = decision.cancel_decoding + decision.newest
            if newest:
                self.runs.cancel_newest(newest)
        self._decide_again(self.headroom.again_seconds)
        self.feeding.rate()
        self.feed.wake.set()

    def _decide_again(self, seconds: float | None) -> None:
        """Once more before the next sample, if the policy asks for it; the newest decision says when."""
        if self._again is not None:
            self._again.cancel()
        self._again = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.decide.wake.set)

    async def _heartbeat(self) -> int:
        """Extend every lease. A lost one is aborted; one whose batch does not run any more is aborted and handed back."""
        tokens = list(self.held.by_token)
        kept = await self.status.heartbeat(tokens, self.settings.lease_seconds)
        for token in tokens:
            if token not in kept:
                self.held.lose(token)
                self.runs.abort(token)
            elif kept[token] is not BatchState.IN_PROGRESS:
                self.waiting.hand_back(lambda request, token=token: request.token == token)  # type: ignore[misc]
                self.runs.abort(token)
        return 0

    async def _wind_down(self, feeding: asyncio.Task[None]) -> None:
        """Claim no more; let what runs finish within the grace period; hand back the rest."""
        log.info("worker.stopping", in_flight=self.runs.in_flight)
        self.waiting.hand_back()
        await asyncio.wait([feeding], timeout=self.settings.grace_seconds)
        self.waiting.hand_back()
        if self.runs.tasks:
            await asyncio.wait(list(self.runs.tasks), timeout=self.settings.grace_seconds)
        for task in list(self.runs.tasks):
            task.cancel()
        if self.runs.tasks:
            await asyncio.wait(list(self.runs.tasks), timeout=1.0)

    async def _leave(self) -> None:
        try:
            await self.deciding.note_failed()
            await self.status.leave()
        except Error as error:
            log.warning("worker.not_signed_off", error=type(error).__name__)
        for part in (self.claims, self.outgoing.results, self.status, self.engine):
            await part.close()
