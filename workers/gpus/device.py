"""Reading one GPU, or one MIG instance, through the binding. Each signal fails on its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from workers.gpus.faults import Answer, Down, Lost, Uninitialised, answer_to, name_of
from workers.gpus.gpm import DRAM, GRAPHICS, SM, TENSOR, ActivityMeter
from workers.gpus.sample import GpuSample, GpuState, ratio

ASK_AGAIN_SECONDS: Final = 2.0
STALE_SECONDS: Final = 3.0
FRESHNESS: Final = "freshness"


@dataclass
class Device:
    """A GPU by its handle. For a MIG instance `parent` is its card and `part` its GPU instance.

    A signal in `tolerated` is dropped when it meets UNKNOWN, which else takes NVML down: a new process did not help it (WSL).
    """

    declared: str
    uuid: str
    handle: Any
    parent: Any
    part: int | None = None
    tolerated: frozenset[str] = frozenset()
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.meter = ActivityMeter(self.parent, self.part)
        self._ask_again_at: dict[str, float] = {}
        self._newest_sample = 0
        self._advanced_at = 0.0

    def read(self) -> GpuSample:
        """All signals now.

        Raises:
            Lost: the GPU does not answer any more.
            Uninitialised: NVML says it was not initialised.
            Down: NVML does not work in this process.
        """
        at = time.monotonic()
        mig, instances = self._mig(at)
        activity = self._ask("gpm", at, lambda: self.meter.read(at)) or {}
        rates = self._rates(at)
        memory = self._memory(at)
        power = self._ask("power", at, lambda: pynvml.nvmlDeviceGetPowerUsage(self.parent))
        busy = ratio(rates.gpu) if rates is not None else activity.get(GRAPHICS)
        is_known = busy is not None and memory is not None
        return GpuSample(
            self.declared,
            at,
            GpuState.OK if is_known else GpuState.PARTIAL,
            self.uuid,
            busy_ratio=busy,
            memory_busy_ratio=ratio(rates.memory) if rates is not None else None,
            memory_used_bytes=memory.used if memory is not None else None,
            memory_total_bytes=memory.total if memory is not None else None,
            processes=self._processes(at),
            power_watts=power / 1000 if power is not None else None,
            sm_ratio=activity.get(SM),
            tensor_ratio=activity.get(TENSOR),
            dram_ratio=activity.get(DRAM),
            mig_enabled=mig,
            mig_instances=instances,
            missing=dict(self.missing),
        )

    def close(self) -> None:
        """Free what the driver holds for it. A driver that is gone has nothing to free."""
        self.meter.close()

    def _rates(self, at: float) -> Any | None:
        """The utilisation, unless the driver stopped taking samples of it: an old figure is no figure."""
        rates = self._ask("utilisation", at, lambda: pynvml.nvmlDeviceGetUtilizationRates(self.handle))
        stale_seconds = self._stale_seconds(at) if rates is not None else 0.0
        if stale_seconds > STALE_SECONDS:
            self.missing["utilisation"] = f"stale: the driver's newest sample is {stale_seconds:.0f} s old"
            return None
        if rates is not None and ratio(rates.gpu) is None:
            self.missing["utilisation"] = "the driver gave a figure that is no percentage"
            return None
        return rates

    def _stale_seconds(self, at: float) -> float:
        """Age of the newest sample in the driver's ring; 0 where the driver does not show its ring.

        The ring is stamped by the wall clock. A sample counts from when it was first seen, less its age by that clock then, so that a
        step of the clock is forgotten with the next sample.
        """
        samples = self._ask(FRESHNESS, at, self._ring, empty=[])
        newest = max((int(sample.timeStamp) for sample in samples or []), default=0)
        if newest > self._newest_sample:
            self._newest_sample = newest
            self._advanced_at = at - max(0.0, time.time() - newest / 1e6)
        return at - self._advanced_at if self._newest_sample else 0.0

    def _ring(self) -> Any:
        kind = pynvml.NVML_GPU_UTILIZATION_SAMPLES
        return pynvml.nvmlDeviceGetSamples(self.handle, kind, self._newest_sample)[1]

    def _memory(self, at: float) -> Any | None:
        """Memory with what the driver reserves told apart; an older driver counts that as used."""
        memory = self._ask(
            "memory",
            at,
            lambda: pynvml.nvmlDeviceGetMemoryInfo(self.handle, version=pynvml.nvmlMemory_v2),
            lambda: pynvml.nvmlDeviceGetMemoryInfo(self.handle),
        )
        if memory is not None and not 0 <= memory.used <= memory.total:
            self.missing["memory"] = "the driver gave more used than there is"
            return None
        return memory

    def _processes(self, at: float) -> int | None:
        """How many processes compute here. Their ids may be of another namespace and are not looked at."""
        found = self._ask(
            "processes",
            at,
            lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle),
            lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v2(self.handle),
            empty=[],
        )
        return None if found is None else len(found)

    def _mig(self, at: float) -> tuple[bool | None, tuple[str, ...]]:
        if self.part is not None:
            return True, ()
        mode = self._ask("mig", at, lambda: pynvml.nvmlDeviceGetMigMode(self.handle))
        if mode is None or not mode[0]:
            return None if mode is None else False, ()
        uuids = self._ask("mig", at, lambda: [uuid for uuid, _ in mig_handles(self.handle)])
        return True, tuple(uuids or ())

    def _ask(self, signal: str, at: float, *calls: Callable[[], Any], empty: Any = None) -> Any:
        """What the first call answers that this driver knows; None, with the reason in `missing`, when none does."""
        if self._ask_again_at.get(signal, 0.0) > at:
            return None
        for call in calls:
            try:
                value = call()
            except pynvml.NVMLError as error:
                answer = answer_to(error.value)
                if answer is Answer.FALL_BACK and call is not calls[-1]:
                    continue
                return self._without(signal, at, answer, name_of(error.value), empty)
            self.missing.pop(signal, None)
            return value
        return None

    def _without(self, signal: str, at: float, answer: Answer, error: str, empty: Any) -> Any:
        if answer is Answer.QUARANTINE:
            raise Lost(error)
        if answer is Answer.REINITIALISE:
            raise Uninitialised(error)
        if answer is Answer.RESTART and not (signal in self.tolerated and error == "UNKNOWN"):
            raise Down(f"{error} from {signal} of {self.declared}", signal)
        if answer is Answer.EMPTY and empty is not None:
            self.missing.pop(signal, None)
            return empty
        self.missing[signal] = error
        if answer is not Answer.EMPTY:
            self._ask_again_at[signal] = at + ASK_AGAIN_SECONDS
        return None


def mig_handles(card: Any) -> list[tuple[str, Any]]:
    """The MIG instances of a card as (UUID, handle); places may be empty. Other errors are the binding's."""
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)
        except pynvml.NVMLError_NotFound:
            continue
        found.append((pynvml.nvmlDeviceGetUUID(handle), handle))
    return found
