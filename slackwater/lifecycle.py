"""What a batch and a request can be, and which way they may go. OpenAI's words, and no others."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class BatchState(IntEnum):
    """The stored state of a batch; `word` is what the wire says."""

    VALIDATING = 0
    IN_PROGRESS = 1
    FINALIZING = 2
    COMPLETED = 3
    FAILED = 4
    EXPIRED = 5
    CANCELLING = 6
    CANCELLED = 7

    @property
    def word(self) -> str:
        return self.name.lower()

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = frozenset({BatchState.COMPLETED, BatchState.FAILED, BatchState.EXPIRED, BatchState.CANCELLED})

# A batch that expires passes through `finalizing` while its missing lines are filled in.
ALLOWED: dict[BatchState, frozenset[BatchState]] = {
    BatchState.VALIDATING: frozenset({BatchState.IN_PROGRESS, BatchState.FAILED, BatchState.CANCELLING}),
    BatchState.IN_PROGRESS: frozenset({BatchState.FINALIZING, BatchState.CANCELLING}),
    BatchState.FINALIZING: frozenset({BatchState.COMPLETED, BatchState.EXPIRED}),
    BatchState.CANCELLING: frozenset({BatchState.CANCELLED}),
} | {state: frozenset() for state in FINAL}


def may_become(old: BatchState, new: BatchState) -> bool:
    """True where the change is on the graph above; a final state never changes."""
    return new in ALLOWED[old]


class RequestState(StrEnum):
    """Where a request is in its life; derived from its result, lease and segment, never stored."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (RequestState.QUEUED, RequestState.RUNNING)


class Outcome(IntEnum):
    """How a request ended. 0 goes to the output file, everything else to the error file."""

    SUCCEEDED = 0
    FAILED = 1
    EXPIRED = 2
    CANCELLED = 3

    @property
    def state(self) -> RequestState:
        return RequestState[self.name]


class Side(IntEnum):
    """The two virtual files of a batch."""

    OUTPUT = 0
    ERROR = 1
