"""From a sample to what admission reads."""

from __future__ import annotations

from scheduler.admission import GpuReading
from workers.gpus.sample import GpuSample


def reading_of(sample: GpuSample, now: float) -> GpuReading:
    """The sample under the name the instance declares, with its age at `now` (seconds of the monotonic clock)."""
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    return GpuReading(
        sample.declared,
        max(0.0, now - sample.at),
        busy_ratio=sample.busy_ratio,
        memory_used_ratio=used / total if used is not None and total else None,
        sm_ratio=sample.sm_ratio,
        dram_ratio=sample.dram_ratio,
        power_watts=sample.power_watts,
        processes=sample.processes,
        state=sample.state.value,
        why=sample.why,
    )
