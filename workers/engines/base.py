"""What every engine is to a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from scheduler.retry import Ending


@dataclass(frozen=True, slots=True)
class Call:
    """One request for an engine. `body` is what the client wrote, but for the published list of members; `id` names the run."""

    id: str
    endpoint: str
    model: str
    body: bytes


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine says of itself at one instant; None where it does not tell. The fields mean what those of `EngineReading` do."""

    running: int | None = None
    waiting: int | None = None
    kv_used_ratio: float | None = None
    iterations: int | None = None
    iteration_tokens: int | None = None
    kv_capacity_tokens: int | None = None


class Engine(Protocol):
    """Runs requests. Cancelling the awaiting task aborts the request in the engine."""

    async def run(self, call: Call) -> Ending:
        """Run one request to its end. Never raises for what an engine may do; `CancelledError` passes."""
        ...

    async def load(self) -> EngineLoad:
        """What runs and waits in the engine now.

        Raises:
            Unavailable: the engine does not answer.
        """
        ...

    async def serves(self, model: str) -> bool:
        """The probe: does it answer and know this model? Decides whether the instance or a line is at fault."""
        ...

    async def close(self) -> None: ...


Options = Mapping[str, object]
