"""Four times a second: sample, decide, have it granted, and say once a second what was decided and why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from scheduler.admission import Admit, Hold, OwnLoad
from scheduler.headroom import Headroom
from scheduler.queue.status import Status
from scheduler.queue.work import Request
from slackwater.explain import Reason
from slackwater.telemetry import DECISIONS
from workers.line import Line
from workers.runs import Runs
from workers.signals import Signals

REPORT_EVERY_SECONDS: Final = 1.0


@dataclass
class Deciding:
    """What this worker may do now. `waiting` tells how many requests are claimed and not started; `decided` is called with every decision."""

    headroom: Headroom
    signals: Signals
    status: Status
    line: Line
    runs: Runs
    waiting: Callable[[], int]
    decided: Callable[[Admit | Hold], None]
    decision: Admit | Hold = field(default_factory=lambda: Hold(Reason.NO_SIGNAL))
    prompt_left: int = 0
    others: int = 0
    served: list[int] = field(default_factory=list)
    is_paused: bool = False
    _granted: int = 0
    _decided_at: float = 0.0
    _reported_at: float = 0.0
    _models_at: float = 0.0

    async def step(self) -> int:
        """One decision, from samples to what it lets go."""
        now = time.monotonic()
        await self._refresh_models(now)
        around = await self.status.surroundings()
        self.others = around.others_in_flight
        pressed = any(place.is_pressed for place in self.line.places)
        readings = self.signals.read(around, paused=self.is_paused, pressed=pressed)
        own = OwnLoad(self.runs.in_flight, self.others, sum(map(self.runs.prompt_tokens, self.runs.tasks.values())))
        self.decision = self.headroom.decide(readings, own, now)
        if isinstance(self.decision, Admit) and asyncio.get_running_loop().time() < self.runs.busy_until:
            self.decision = Hold(Reason.INSTANCE_BUSY)
        await self._ask()
        self._decided_at = now
        self.prompt_left = self.decision.prompt_tokens if isinstance(self.decision, Admit) else 0
        self.decided(self.decision)
        await self._report(now)
        return 0

    def slots(self) -> int:
        """Slots granted under the newest decision; none when it is too old to stand on."""
        if not isinstance(self.decision, Admit):
            return 0
        is_valid = time.monotonic() - self._decided_at < self.decision.valid_seconds
        return min(self._granted, self.decision.slots) if is_valid else 0

    def took(self, request: Request) -> None:
        """Its prompt counts against the decision."""
        tokens = self.runs.prompt_tokens(request)
        self.prompt_left -= tokens
        self.headroom.started(tokens)

    async def note_failed(self) -> None:
        """Write down the runs that gave no result."""
        if self.runs.failed:
            failed, self.runs.failed = self.runs.failed, []
            await self.status.note(failed)

    async def _ask(self) -> None:
        """Have the decision granted: other workers of the instance may have decided the same at the same time."""
        slots = self.decision.slots if isinstance(self.decision, Admit) else 0
        in_flight = self.runs.in_flight
        await self.line.read(self.served)
        wanted = slots if self.line.places else min(slots, in_flight + self.waiting())
        self._granted = await self.status.ask(asked=wanted, most=slots + self.others, in_flight=in_flight)

    async def _refresh_models(self, now: float) -> None:
        if now - self._models_at > REPORT_EVERY_SECONDS:
            served = await self.status.models()
            # What is being claimed at this moment may be of one that is not served any more: none is forgotten.
            self.runs.models |= {m.id: m for m in served}
            self.served = [m.id for m in served if not m.is_paused]
            self.is_paused = bool(served) and not self.served
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
        await self.note_failed()
