"""What a claim brings, and what a worker gives back for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from slackwater.lifecycle import Outcome
from slackwater.pricing import Price
from slackwater.reader.usage import Usage


@dataclass(frozen=True, slots=True)
class Request:
    """One line of a batch under a lease. `body` is exactly what the client wrote."""

    token: UUID
    tenant_id: int
    batch_id: int
    model_id: int
    position: int
    line: int
    custom_id: str
    endpoint: str
    body: bytes
    est_tokens: int
    attempts: int
    deferrals: int
    price: Price


@dataclass(frozen=True, slots=True)
class Claim:
    """A range under one token: positions `first` … `first + n - 1`, of which `requests` have no result yet.

    `rescues` counts how often the range lost its worker: from the second time on each of its requests runs alone.
    """

    token: UUID
    batch_id: int
    first: int
    n: int
    rescues: int
    deaths: int
    requests: Sequence[Request]


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that ended. `line` is the output line, newline included."""

    request: Request
    outcome: Outcome
    http: int | None
    usage: Usage
    cost: int
    line: bytes


@dataclass(frozen=True, slots=True)
class Returned:
    """Positions that go back unfinished, ready after `delay_seconds`; 0 is at once."""

    token: UUID
    first: int
    n: int = 1
    delay_seconds: float = 0.0
    attempts: int = 0
    deferrals: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """What one group commit carries: results, and the leases that end with what they hand back."""

    finished: Sequence[Finished] = field(default_factory=tuple)
    closed: Sequence[UUID] = field(default_factory=tuple)
    returned: Sequence[Returned] = field(default_factory=tuple)

    @property
    def is_empty(self) -> bool:
        return not (self.finished or self.closed)
