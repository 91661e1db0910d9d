"""One timestamped reading of a GPU, and its form on the pipe between the sampler and its child."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class GpuState(StrEnum):
    """How much of a GPU is known."""

    OK = "ok"
    PARTIAL = "partial"
    """Utilisation or memory is unknown; `missing` says why."""
    LOST = "lost"
    """The GPU fell out, or none is there by this name."""
    DOWN = "down"
    """NVML itself does not answer."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What one GPU, or one MIG instance, did at `at` (seconds of the monotonic clock, taken before the first call).

    None is unknown: neither idle nor busy. `declared` is the name the instance gives, `uuid` what the driver calls it.
    Ratios are 0 to 1. `busy_ratio` is the share of time in which any kernel ran. Power is that of the whole card, also for a
    MIG instance. `missing` has the signals without a value, each with its reason.
    """

    declared: str
    at: float
    state: GpuState
    uuid: str | None = None
    busy_ratio: float | None = None
    memory_busy_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    processes: int | None = None
    power_watts: float | None = None
    sm_ratio: float | None = None
    tensor_ratio: float | None = None
    dram_ratio: float | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def why(self) -> str | None:
        """The missing signals and their reasons in one sentence; None when nothing is missing."""
        return "; ".join(f"{signal}: {why}" for signal, why in sorted(self.missing.items())) or None


@dataclass(frozen=True, slots=True)
class Outage:
    """NVML is down in the child that says so. `signal` is the reading that met it, None outside one."""

    why: str
    signal: str | None = None


def ratio(percent: float) -> float | None:
    """A percentage as a ratio. None where the driver gave what is none (NaN, its mark for "not available")."""
    return min(percent / 100, 1.0) if 0 <= percent <= 101 else None


def encode(said: Sequence[GpuSample] | Outage) -> bytes:
    """One line of JSON."""
    if isinstance(said, Outage):
        return json.dumps({"outage": asdict(said)}).encode() + b"\n"
    return json.dumps({"samples": [asdict(sample) for sample in said]}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> tuple[GpuSample, ...] | Outage:
    """What `encode` was given."""
    said = json.loads(line)
    if "outage" in said:
        return Outage(**said["outage"])
    return tuple(_sample(fields) for fields in said["samples"])


def _sample(fields: dict[str, Any]) -> GpuSample:
    state, instances = GpuState(fields.pop("state")), tuple(fields.pop("mig_instances"))
    return GpuSample(state=state, mig_instances=instances, **fields)
