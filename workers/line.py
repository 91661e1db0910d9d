"""What is waiting for this instance, in order of turn, read from the database at most once a second."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from scheduler import fairness
from scheduler.queue.claims import Claims
from scheduler.queue.work import Claim

READ_EVERY_SECONDS: Final = 1.0
EMPTY_EVERY_SECONDS: Final = 0.2
RETRY_SHARE: Final = 0.2


@dataclass
class Line:
    """Claims the next requests in turn. `since` counts tokens claimed per tenant after the last reading."""

    claims: Claims
    places: list[fairness.Place] = field(default_factory=list)
    since: Counter[int] = field(default_factory=Counter)
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=4))
    _read_at: float = 0.0

    async def take(self, model_ids: list[int], most: int, *, retries: bool) -> Claim | None:
        """Up to `most` requests of the place whose turn it is; None when nothing is ready for these models."""
        await self.read(model_ids)
        while self.places:
            ranked = [
                p for p in fairness.rank(self.places, since=self.since, recent=self.recent) if p.model_id in model_ids
            ]
            if not ranked:
                return None
            turn = ranked[0]
            claim = await self.claims.claim(turn.model_id, [turn.batch_id], most=most, retries=retries)
            if claim is not None:
                self._note(turn, claim)
                return claim
            self.places = [p for p in self.places if (p.batch_id, p.model_id) != (turn.batch_id, turn.model_id)]
        return None

    def look_again(self) -> None:
        """Something changed: read the line at the next `take`."""
        if not self.places:
            self._read_at = 0.0

    async def read(self, model_ids: list[int]) -> None:
        """Read the line anew, unless that was done just now."""
        now = time.monotonic()
        if now - self._read_at < (READ_EVERY_SECONDS if self.places else EMPTY_EVERY_SECONDS):
            return
        self._read_at = now
        self.since.clear()
        self.places = await self.claims.line(model_ids)

    def _note(self, turn: fairness.Place, claim: Claim) -> None:
        self.since[turn.tenant_id] += sum(r.est_tokens for r in claim.requests)
        if claim.batch_id not in self.recent:
            self.recent.append(claim.batch_id)
