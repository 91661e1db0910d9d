"""The leases a worker holds, in memory: what of each is still open, and what goes back when it closes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from scheduler.queue.work import Claim, Request, Returned


@dataclass
class Holding:
    """One lease. `open` are the positions that have not ended here."""

    claim: Claim
    open: set[int]
    returned: list[Returned] = field(default_factory=list)


@dataclass
class Held:
    """All leases of a worker by token."""

    by_token: dict[UUID, Holding] = field(default_factory=dict)

    def add(self, claim: Claim) -> None:
        self.by_token[claim.token] = Holding(claim, {r.position for r in claim.requests})

    def holds(self, token: UUID) -> bool:
        return token in self.by_token

    def end(self, request: Request, returned: Returned | None = None) -> Holding | None:
        """A request ended, or goes back as `returned`. Gives the holding, removed, when that was its last one."""
        holding = self.by_token.get(request.token)
        if holding is None:
            return None
        holding.open.discard(request.position)
        if returned is not None:
            holding.returned.append(returned)
        if holding.open:
            return None
        return self.by_token.pop(request.token)

    def lose(self, token: UUID) -> None:
        """The lease is gone: nothing of it may be handed back."""
        self.by_token.pop(token, None)


def joined(returned: list[Returned]) -> Iterator[Returned]:
    """The same positions in as few ranges of at most 64 as their delays and counts allow."""
    last: Returned | None = None
    for part in sorted(returned, key=lambda r: r.first):
        if last is not None and _continues(last, part):
            last = Returned(last.token, last.first, last.n + part.n, last.delay_seconds, last.attempts, last.deferrals)
        else:
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last


def _continues(last: Returned, part: Returned) -> bool:
    same = (last.delay_seconds, last.attempts, last.deferrals) == (part.delay_seconds, part.attempts, part.deferrals)
    return same and last.first + last.n == part.first and last.n + part.n <= 64
