"""What is claimed and waits in this worker, what of it starts, and how much more is claimed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from scheduler.queue.claims import Claims
from scheduler.queue.work import Claim, Request
from workers.deciding import Deciding
from workers.line import Line
from workers.outgoing import Outgoing
from workers.runs import Runs

SEGMENT: Final = 64
RETRY_SHARE: Final = 0.2
SUSPECT_RESCUES: Final = 2
SUSPECT_PAUSE_SECONDS: Final = 0.02


@dataclass
class Waiting:
    """Claimed requests that have not started. A suspect's range has lost its worker twice: it runs with nothing else of ours."""

    runs: Runs
    backlog: deque[Request] = field(default_factory=deque)
    suspects: deque[Request] = field(default_factory=deque)

    def accept(self, claim: Claim) -> None:
        self.runs.held.add(claim)
        (self.suspects if claim.rescues >= SUSPECT_RESCUES else self.backlog).extend(claim.requests)

    def count(self) -> int:
        return len(self.backlog) + len(self.suspects)

    def hand_back(self, which: Callable[[Request], bool] = lambda _: True) -> None:
        """Give back those that match, unstarted."""
        for queue in (self.backlog, self.suspects):
            requests = list(queue)
            queue.clear()
            queue.extend(request for request in requests if not which(request))
            for request in requests:
                if which(request):
                    self.runs.hand_back(request)


@dataclass
class Feeding:
    """Keeps the granted slots filled, and claims ahead what will start within `horizon_seconds`."""

    waiting: Waiting
    deciding: Deciding
    line: Line
    claims: Claims
    runs: Runs
    outgoing: Outgoing
    horizon_seconds: float
    stopping: asyncio.Event
    _rate: float = 0.0
    _rated_at: float = 0.0
    _done_before: int = 0

    async def step(self) -> int:
        """Start what is claimed, claim more where there is room. Returns how much began."""
        slots = 0 if self.stopping.is_set() else self.deciding.slots()
        if slots == 0:
            return 0
        if self.waiting.suspects:
            return await self._run_suspect()
        backlog = self.waiting.backlog
        begun = self._start(slots)
        free = slots - self.runs.in_flight - len(backlog) if self.deciding.prompt_left > 0 else 0
        if free > 0 or len(backlog) < self._ahead() / 2:
            most = max(1, min(SEGMENT, max(free, self._ahead() - len(backlog))))
            claim = await self.line.take(self.deciding.served, most, retries=self._takes_retries(slots))
            if claim is not None:
                self.waiting.accept(claim)
                return 1 + begun
        return 0

    def rate(self) -> None:
        """Completions a second, smoothed over about two seconds: what a claim may reach ahead for."""
        now = time.monotonic()
        seconds = now - self._rated_at
        rate = (self.runs.done - self._done_before) / seconds if 0 < seconds < 10 else 0.0
        self._rate += (rate - self._rate) * min(1.0, seconds / 2)
        self._rated_at, self._done_before = now, self.runs.done

    def _ahead(self) -> int:
        """Requests that will start within the horizon, at the rate of late."""
        return min(8 * SEGMENT, ceil(self._rate * self.horizon_seconds))

    def _takes_retries(self, slots: int) -> bool:
        """A retry may take at most a fifth of the slots, and always one."""
        requests = [*self.runs.tasks.values(), *self.waiting.backlog]
        return sum(1 for request in requests if request.attempts) < max(1, int(slots * RETRY_SHARE))

    def _start(self, slots: int) -> int:
        begun = 0
        while self.waiting.backlog and self.runs.in_flight < slots and self.deciding.prompt_left > 0:
            request = self.waiting.backlog.popleft()
            if self.runs.held.holds(request.token):
                self.runs.start(request)
                self.deciding.took(request)
                begun += 1
        return begun

    async def _run_suspect(self) -> int:
        """Run the first suspect with nothing else of ours in the engine; others wait meanwhile.

        Nor may an earlier one's result still be on its way: its lease would be blamed for this one's death.
        """
        suspects, held = self.waiting.suspects, self.runs.held
        if self.runs.in_flight > 0 or not self.outgoing.is_empty:
            await asyncio.sleep(SUSPECT_PAUSE_SECONDS)
            return 1
        request = suspects[0]
        is_held = held.holds(request.token)
        if is_held and self.deciding.others == 0 and not await self.claims.mark_alone(request.token):
            held.lose(request.token)
            is_held = False
        if suspects and suspects[0] is request:
            suspects.popleft()
            if is_held:
                self.deciding.took(request)
                await asyncio.wait([self.runs.start(request)])
        return 1
