"""The words of admission: what is known, what is allowed, and the answer. `scheduler.headroom` decides.

Live requests come first, and what is unknown is never taken for idle: a required signal that is missing or stale holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.explain import Reason

Mode = Literal["strict", "balanced", "deadline"]


@dataclass(frozen=True, slots=True)
class EngineReading:
    """What the engine says of itself. None where this engine does not tell. `age_seconds` is since it was read.

    `iterations` and `iteration_tokens` are counters since the engine started (vLLM: count and sum of `iteration_tokens_total`):
    from two readings follow the time of an iteration and the prompt tokens in it.
    """

    age_seconds: float
    running: int | None = None
    waiting: int | None = None
    kv_used_ratio: float | None = None
    iterations: int | None = None
    iteration_tokens: int | None = None
    kv_capacity_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LiveReading:
    """Live requests on the instance, summed over all api processes; the age is that of the oldest of them.

    `ttft_p99_seconds` and `inter_token_p99_seconds` are over the requests of the last minute; None where there were none.
    """

    age_seconds: float
    running: int = 0
    waiting: int = 0
    ttft_p99_seconds: float | None = None
    inter_token_p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU by UUID. None where the driver does not tell: unknown is neither 0 nor 1. `why` says what is missing."""

    uuid: str
    age_seconds: float
    busy_ratio: float | None = None
    memory_used_ratio: float | None = None
    sm_ratio: float | None = None
    dram_ratio: float | None = None
    power_watts: float | None = None
    processes: int | None = None
    state: str = "ok"
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything that is known at one instant. A missing signal is None, or an absent GPU.

    `pressed` is set while work of this instance is near its deadline; it matters in mode `deadline` only.
    """

    engine: EngineReading | None
    live: LiveReading | None
    gpus: tuple[GpuReading, ...] = ()
    needs_live: bool = False
    declared_gpus: tuple[str, ...] = ()
    paused: bool = False
    pressed: bool = False


@dataclass(frozen=True, slots=True)
class OwnLoad:
    """Batch requests in flight on the instance: of this worker, and of every other one (fresh grants).

    `prompt_tokens` is what the prompts of this worker's requests hold in the cache; None where nobody counted. `waiting` of them are known
    to stand in the engine's queue, which only an engine of our own can tell.
    """

    mine: int = 0
    others: int = 0
    prompt_tokens: int | None = None
    waiting: int = 0

    @property
    def total(self) -> int:
        return self.mine + self.others


@dataclass(frozen=True, slots=True)
class Objectives:
    """What live requests are promised at the 99th percentile, in seconds. None: found from the instance's own quiet times."""

    ttft_seconds: float | None = None
    inter_token_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator allows. Ages are seconds; `max_slots` is for all requests on the instance, live ones and those of every
    worker.

    `chunk_tokens` is what the engine computes in one iteration at most, `prefill_cap_tokens` what it takes
    of one batch prompt (vLLM: `--long-prefill-token-threshold`). `deadline_share` is the share of the slots that work near
    its deadline gets in mode `deadline`, whatever the model of iterations says; live requests that wait still come first.
    """

    max_slots: int
    mode: Mode = "balanced"
    max_age_seconds: float = 1.0
    lost_age_seconds: float = 5.0
    chunk_tokens: int = 1024
    prefill_cap_tokens: int | None = None
    deadline_share: float = 0.1
    objectives: Objectives = Objectives()


@dataclass(frozen=True, slots=True)
class Admit:
    """This worker may have `slots` requests in flight.

    Over an upstream it may start requests until their prompts sum to `prompt_tokens`, the last of them may overrun. In an engine of our
    own `prompt_tokens` is for each iteration. It stands for `valid_seconds`: then a signal it rests on is too old.
    """

    slots: int
    prompt_tokens: int
    valid_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Hold:
    """Start nothing. Each further step gives up more, and includes those before it.

    `hand_back`: what has not started. `cancel_unprefilled`: what runs and has no token yet, the `newest` so many as far as is known.
    `cancel_decoding`: so many that decode, the cheapest first; an emergency.
    """

    reason: Reason
    details: str | None = None
    hand_back: bool = False
    cancel_unprefilled: bool = False
    newest: int = 0
    cancel_decoding: int = 0
