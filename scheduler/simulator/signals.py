"""What a worker may read of a replica, when it was taken, and the faults that keep it from coming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fault:
    """From `at` for `seconds`: a signal is not renewed, or (`worker`) the worker is dead and its requests are lost."""

    what: Literal["engine", "live", "nvml", "worker"]
    at: float
    seconds: float


@dataclass(slots=True)
class Signals:
    """The newest samples, and when they were taken."""

    engine_at: float = -1e9
    running: int = 0
    waiting: int = 0
    kv_ratio: float = 0.0
    iterations: int = 0
    iteration_tokens: int = 0
    live_at: float = -1e9
    live_running: int = 0
    live_waiting: int = 0
    ttft_p99: float | None = None
    tpot_p99: float | None = None
    nvml_at: float = -1e9
    busy_ratio: float = 0.0
