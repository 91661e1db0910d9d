"""What a replica works on: requests, how the engine was started, and what one iteration of it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CHUNK_TOKENS: Final = 1024
KV_TOKENS: Final = 560_000
MAX_SEQUENCES: Final = 256


class Sequence:
    """A request in the engine. Times are seconds; `past` counts prompt tokens done, `turn` is its place among those that were let in."""

    __slots__ = ("arrived_at", "first_at", "id", "is_live", "output", "past", "prompt", "turn")

    def __init__(self, id: int, prompt: int, output: int, arrived_at: float, *, is_live: bool) -> None:
        self.id, self.prompt, self.output, self.arrived_at, self.is_live = id, prompt, output, arrived_at, is_live
        self.past = 0
        self.first_at = -1.0
        self.turn = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How the engine was started. `cap` is the most prompt tokens of one batch request per iteration, with `first_come` of any request.

    `first_come` fills an iteration in the order in which requests were let in, whoever they are of; else live prompts go first.
    """

    chunk: int = CHUNK_TOKENS
    cap: int = CHUNK_TOKENS
    kv: int = KV_TOKENS
    sequences: int = MAX_SEQUENCES
    first_come: bool = False


@dataclass(slots=True)
class Iteration:
    """What the last iteration did; milliseconds and tokens."""

    ms: float = 0.0
    decoding: int = 0
    live_decoding: int = 0
    live_prompt: int = 0
    own_prompt: int = 0
    attention: float = 0.0
    kv: int = 0
    ended_live: list[Sequence] = field(default_factory=list)
    ended_own: list[Sequence] = field(default_factory=list)
    first_live: list[Sequence] = field(default_factory=list)
    first_own: list[Sequence] = field(default_factory=list)
