"""The worker: four times a second sample and decide, claim what will start soon, run it, store it, hand back what must yield."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import structlog
from psycopg import Error

from scheduler.admission import Admit, Hold, OwnLoad
from scheduler.headroom import Headroom
from scheduler.queue.claims import Claims
from scheduler.queue.results import Results
from scheduler.queue.status import Status
from scheduler.queue.work import Claim, Request
from slackwater.explain import Reason
from slackwater.lifecycle import BatchState
from slackwater.loop import Loop
from slackwater.settings import Settings
from slackwater.telemetry import DECISIONS
from workers.engines.base import Engine
from workers.held import Held
from workers.instance import Instance, policy_of
from workers.line import Line
from workers.outgoing import Outgoing
from workers.runs import Runs
from workers.signals import Signals

log = structlog.get_logger()
DECIDE_EVERY_SECONDS: Final = 0.25
REPORT_EVERY_SECONDS: Final = 1.0
SEGMENT: Final = 64
RETRY_SHARE: Final = 0.2
SUSPECT_RESCUES: Final = 2
SUSPECT_PAUSE_SECONDS: Final = 0.02


@dataclass
class Worker:
    """Serves one instance. `run` returns when `stopping` was set and everything held is stored or handed back."""

    settings: Settings
    instance: Instance
    engine: Engine
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        dsn, worker_id = self.settings.dsn, self.instance.worker_id
        self.claims = Claims.on(dsn, worker_id, self.settings.lease_seconds)
        self.status = Status.on(dsn, worker_id, self.instance.id)
        self.outgoing = Outgoing(Results.on(dsn, worker_id, self.instance.id))
        self.line = Line(self.claims)
        self.held = Held()
        self.deciding = Loop("decide", self._decide, DECIDE_EVERY_SECONDS)
        self.feed = Loop("feed", self._feed, DECIDE_EVERY_SECONDS)
        self.runs = Runs(
            self.engine, self.held, self.outgoing, self.status, self.settings.max_attempts, self.feed.wake.set
        )
        self.signals = Signals(self.engine, self.instance)
        self.backlog: deque[Request] = deque()
        self.suspects: deque[Request] = deque()
        self.headroom = Headroom(policy_of(self.settings, self.instance))
        self.decision: Admit | Hold = Hold(Reason.NO_SIGNAL)
        self._prompt_left = 0
        self._decided_at = self._reported_at = self._models_at = self._rated_at = 0.0
        self._rate = 0.0
        self._done_before = 0
        self._others = self._granted = 0
        self._served: list[int] = []

    async def run(self) -> None:
        """Work until told to stop, then finish or hand back within the grace period."""
        storing = asyncio.create_task(self.outgoing.run())
        halt = asyncio.Event()
        loops = [
            asyncio.create_task(self.deciding.run(halt)),
            asyncio.create_task(self.feed.run(self.stopping)),
            asyncio.create_task(Loop("heartbeat", self._heartbeat, self._heartbeat_seconds).run(halt)),
            asyncio.create_task(self.signals.sample(halt)),
        ]
        await self.stopping.wait()
        await self._wind_down(loops[1])
        halt.set()
        await asyncio.gather(*loops, return_exceptions=True)
        self.outgoing.end(self.settings.grace_seconds)
        await storing
        await self._leave()

    def look_again(self) -> None:
        """There may be new work: decide and claim at once."""
        self.line.look_again()
        self.deciding.wake.set()

    @property
    def _heartbeat_seconds(self) -> float:
        return min(1.0, self.settings.lease_seconds / 4)

    # Deciding

    async def _decide(self) -> int:
        """Sample, decide, report. What has not started goes back when signals are lost."""
        now = time.monotonic()
        await self._refresh_models(now)
        around = await self.status.surroundings()
        self._others = around.others_in_flight
        paused = bool(self.runs.models) and all(m.is_paused for m in self.runs.models.values())
        pressed = any(place.is_pressed for place in self.line.places)
        readings = self.signals.read(around, paused=paused, pressed=pressed)
        own = OwnLoad(self.runs.in_flight, around.others_in_flight, sum(r.est_tokens for r in self.runs.tasks.values()))
        self.decision = self.headroom.decide(readings, own, now)
        if isinstance(self.decision, Admit) and asyncio.get_running_loop().time() < self.runs.busy_until:
            self.decision = Hold(Reason.INSTANCE_BUSY)
        await self._ask()
        self._decided_at = now
        self._prompt_left = self.decision.prompt_tokens if isinstance(self.decision, Admit) else 0
        self._yield()
        self._rate_completions(now)
        self.feed.wake.set()
        await self._report(now)
        return 0

    async def _ask(self) -> None:
        """Have the decision granted: other workers of the instance may have decided the same at the same time."""
        slots = self.decision.slots if isinstance(self.decision, Admit) else 0
        in_flight = self.runs.in_flight
        await self.line.read(self._served)
        wanted = slots if self.line.places else min(slots, in_flight + len(self.backlog) + len(self.suspects))
        self._granted = await self.status.ask(asked=wanted, most=slots + self._others, in_flight=in_flight)

    async def _refresh_models(self, now: float) -> None:
        if now - self._models_at > REPORT_EVERY_SECONDS:
            served = {m.id: m for m in await self.status.models()}
            self.runs.models = self.runs.models | served if self.held.by_token else served
            self._served = [m.id for m in served.values() if not m.is_paused]
            self._models_at = now

    async def _report(self, now: float) -> None:
        if now - self._reported_at < REPORT_EVERY_SECONDS:
            return
        self._reported_at = now
        decision = self.decision
        reason = decision.reason.value if isinstance(decision, Hold) else None
        DECISIONS.labels(reason or "admit").inc()
        details = {"message": decision.details} if isinstance(decision, Hold) and decision.details else {}
        slots, tokens = (decision.slots, decision.prompt_tokens) if isinstance(decision, Admit) else (0, 0)
        await self.status.decide(
            admitted=reason is None, reason=reason, slots=slots, prompt_tokens=tokens, details=details
        )
        await self._note_failed()

    async def _note_failed(self) -> None:
        if self.runs.failed:
            failed, self.runs.failed = self.runs.failed, []
            await self.status.note(failed)

    def _rate_completions(self, now: float) -> None:
        """Completions a second, smoothed over about two seconds: what a claim may reach ahead for."""
        seconds = now - self._rated_at
        rate = (self.runs.done - self._done_before) / seconds if seconds < 10 else 0.0
        self._rate += (rate - self._rate) * min(1.0, seconds / 2)
        self._rated_at, self._done_before = now, self.runs.done

    # Feeding

    async def _feed(self) -> int:
        """Start what is claimed, claim more where there is room. Returns how much began."""
        slots = self._slots()
        if slots == 0:
            return 0
        if self.suspects:
            return await self._run_suspect()
        begun = self._start(slots)
        free = slots - self.runs.in_flight - len(self.backlog) if self._prompt_left > 0 else 0
        if free > 0 or len(self.backlog) < self._ahead() / 2:
            claim = await self.line.take(self._served, self._most(free), retries=self._takes_retries(slots))
            if claim is not None:
                self._accept(claim)
                return 1 + begun
        return 0

    def _slots(self) -> int:
        """Slots granted under the newest decision; none when it is too old to stand on."""
        decision = self.decision
        if not isinstance(decision, Admit) or self.stopping.is_set():
            return 0
        is_valid = time.monotonic() - self._decided_at < decision.valid_seconds
        return min(self._granted, decision.slots) if is_valid else 0

    def _ahead(self) -> int:
        """Requests that will start within the horizon, at the rate of late."""
        return min(8 * SEGMENT, ceil(self._rate * self.settings.claim_horizon_seconds))

    def _most(self, free: int) -> int:
        return max(1, min(SEGMENT, max(free, self._ahead() - len(self.backlog))))

    def _takes_retries(self, slots: int) -> bool:
        """A retry may take at most a fifth of the slots, and always one."""
        retries = sum(1 for r in self.runs.tasks.values() if r.attempts) + sum(1 for r in self.backlog if r.attempts)
        return retries < max(1, int(slots * RETRY_SHARE))

    def _accept(self, claim: Claim) -> None:
        self.held.add(claim)
        (self.suspects if claim.rescues >= SUSPECT_RESCUES else self.backlog).extend(claim.requests)

    def _start(self, slots: int) -> int:
        begun = 0
        while self.backlog and self.runs.in_flight < slots and self._prompt_left > 0:
            request = self.backlog.popleft()
            if self.held.holds(request.token):
                self.runs.start(request)
                self._took(request)
                begun += 1
        return begun

    def _took(self, request: Request) -> None:
        """Its prompt counts against the decision; the estimate is the best that is known before the engine has read it."""
        self._prompt_left -= request.est_tokens
        self.headroom.started(request.est_tokens)

    async def _run_suspect(self) -> int:
        """A request whose range lost its worker twice runs with nothing else of ours in the engine; others wait meanwhile.

        Nor may an earlier one's result still be on its way: its lease would be blamed for this one's death.
        """
        if self.runs.in_flight > 0 or not self.outgoing.is_empty:
            await asyncio.sleep(SUSPECT_PAUSE_SECONDS)
            return 1
        request = self.suspects[0]
        is_held = self.held.holds(request.token)
        if is_held and self._others == 0 and not await self.claims.mark_alone(request.token):
            self.held.lose(request.token)
            is_held = False
        if self.suspects and self.suspects[0] is request:
            self.suspects.popleft()
            if is_held:
                self._took(request)
                await asyncio.wait([self.runs.start(request)])
        return 1

    # Keeping and giving back

    async def _heartbeat(self) -> int:
        """Extend every lease. A lost one is aborted; one whose batch does not run any more is aborted and handed back."""
        tokens = list(self.held.by_token)
        kept = await self.status.heartbeat(tokens, self.settings.lease_seconds)
        for token in tokens:
            if token not in kept:
                self.held.lose(token)
                self.runs.abort(token)
            elif kept[token] is not BatchState.IN_PROGRESS:
                self._drop_waiting(lambda request, token=token: request.token == token)
                self.runs.abort(token)
        return 0

    def _yield(self) -> None:
        """Give up what the decision says: what waits, what has no token yet, and in an emergency what decodes."""
        decision = self.decision
        if not isinstance(decision, Hold):
            return
        if decision.hand_back:
            self._hand_back_waiting()
        newest = decision.cancel_decoding + (self.headroom.unprefilled if decision.cancel_unprefilled else 0)
        if newest:
            self.runs.cancel_newest(newest)

    def _hand_back_waiting(self) -> None:
        self._drop_waiting(lambda _: True)

    def _drop_waiting(self, which: object) -> None:
        assert callable(which)
        for queue in (self.backlog, self.suspects):
            waiting = list(queue)
            queue.clear()
            for request in waiting:
                if which(request):
                    self.runs.hand_back(request)
                else:
                    queue.append(request)

    async def _wind_down(self, feeding: asyncio.Task[None]) -> None:
        """Claim no more; let what runs finish within the grace period; hand back the rest."""
        log.info("worker.stopping", in_flight=self.runs.in_flight)
        self._hand_back_waiting()
        await asyncio.wait([feeding], timeout=self.settings.grace_seconds)
        self._hand_back_waiting()
        if self.runs.tasks:
            await asyncio.wait(list(self.runs.tasks), timeout=self.settings.grace_seconds)
        for task in list(self.runs.tasks):
            task.cancel()
        if self.runs.tasks:
            await asyncio.wait(list(self.runs.tasks), timeout=1.0)

    async def _leave(self) -> None:
        try:
            await self._note_failed()
            await self.status.leave()
        except Error as error:
            log.warning("worker.not_signed_off", error=type(error).__name__)
        for part in (self.claims, self.outgoing.results, self.status, self.engine):
            await part.close()
