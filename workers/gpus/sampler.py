"""The worker's side: the newest sample of every GPU, and a child process that is replaced when it hangs, dies or cannot go on."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

import workers
from scheduler.admission import GpuReading
from workers.gpus.binding import check_binding
from workers.gpus.reading import reading_of
from workers.gpus.sample import GpuSample, GpuState, Outage, decode

log = structlog.get_logger()
NEEDED: Final = ("memory",)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds."""

    down: float = 1.0
    """Without a sample for so long NVML counts as down."""
    kill: float = 3.0
    """Without a sample for so long the child is killed."""
    first: float = 15.0
    """As `kill`, before the first sample: initialising many GPUs takes seconds where no process holds them open."""
    restart: float = 0.5
    """Before the first new child; doubled with every one that fails."""
    restart_most: float = 10.0
    healthy: float = 5.0
    """A child that sampled for so long makes up for the failures before it."""
    check: float = 0.2

    def before_restart(self, failures: int) -> float:
        """Seconds until the next child, after so many failures in a row (at least 1)."""
        return min(self.restart_most, self.restart * 2.0 ** min(failures - 1, 16))


@dataclass
class GpuSampler:
    """Samples the GPUs that an instance declares. `run` keeps it going; `samples` and `readings` never block.

    Raises:
        Misconfigured: the binding is missing, or an old one shadows it.
    """

    declared: tuple[str, ...]
    every_seconds: float = 0.2
    patience: Patience = field(default_factory=Patience)
    environment: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_binding()
        self.newest: dict[str, GpuSample] = {}
        self.why_down: str | None = "not sampled yet"
        self.restarts = 0
        self.child: Process | None = None
        self._failures = 0
        self._tolerated: set[str] = set()
        self._begun_at = self._first_at = self._heard_at = 0.0

    def samples(self) -> tuple[GpuSample, ...]:
        """The newest sample of each declared GPU. While NVML is down its state and reason say so; figures keep their age."""
        return tuple(self._newest(declared) for declared in self.declared)

    def readings(self) -> tuple[GpuReading, ...]:
        """The same for admission. A GPU that was never read has an infinite age."""
        now = time.monotonic()
        return tuple(reading_of(sample, now) for sample in self.samples())

    async def run(self, stopping: asyncio.Event) -> None:
        """Sample until `stopping` is set. Whatever befalls a child, another one follows."""
        while not stopping.is_set():
            try:
                await self._run_child(stopping)
            except Exception as error:
                log.exception("gpus.failed", error=type(error).__name__)
                self._fall(f"the sampler failed ({type(error).__name__})")
            if not stopping.is_set():
                self._count_failure()
                await _either(stopping, self.patience.before_restart(self._failures))
        self.why_down = "stopped"

    def _newest(self, declared: str) -> GpuSample:
        sample = self.newest.get(declared) or GpuSample(declared, float("-inf"), GpuState.DOWN)
        if self.why_down is None:
            return sample
        return replace(sample, state=GpuState.DOWN, missing={"nvml": self.why_down})

    async def _run_child(self, stopping: asyncio.Event) -> None:
        child = self.child = await self._start()
        reading = asyncio.create_task(self._read(child))
        try:
            while not reading.done() and not stopping.is_set() and not self._is_hung():
                await asyncio.wait({reading}, timeout=self.patience.check)
        finally:
            await self._end(child, reading, stopping)

    async def _start(self) -> Process:
        self._begun_at, self._first_at, self._heard_at = time.monotonic(), 0.0, 0.0
        arguments = ["--parent", str(os.getpid()), "--every-seconds", str(self.every_seconds)]
        for gpu in self.declared:
            arguments += ["--gpu", gpu]
        for signal in sorted(self._tolerated):
            arguments += ["--tolerate", signal]
        command = (sys.executable, "-m", "workers.gpus.child", *arguments)
        child = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, env=self._environment())
        log.info("gpus.started", child=child.pid, tolerated=sorted(self._tolerated))
        return child

    def _environment(self) -> dict[str, str]:
        """The worker's own, with this very code on the path and nothing of the directory it happens to run in."""
        given = dict(os.environ if self.environment is None else self.environment)
        home = str(Path(workers.__path__[0]).parent)
        given["PYTHONPATH"] = os.pathsep.join(filter(None, (given.get("PYTHONPATH"), home)))
        return given | {"PYTHONSAFEPATH": "1"}

    async def _read(self, child: Process) -> None:
        """Take what the child says until it has ended. Ending by itself it is not signalled: that would race with its reaping."""
        assert child.stdout is not None
        while line := await child.stdout.readline():
            said = decode(line)
            if isinstance(said, Outage):
                self._take_outage(said)
            else:
                self._take_samples(said)
        status = await child.wait()
        self._fall(self.why_down or f"the sampling process ended ({status})")

    def _take_samples(self, samples: tuple[GpuSample, ...]) -> None:
        self._heard_at = time.monotonic()
        self._first_at = self._first_at or self._heard_at
        for sample in samples:
            before = self.newest.get(sample.declared)
            self.newest[sample.declared] = sample
            if before is None or (before.state, set(before.missing)) != (sample.state, set(sample.missing)):
                log.info("gpu.changed", gpu=sample.declared, state=sample.state.value, missing=sample.missing)
        oldest = min((sample.at for sample in samples), default=0.0)
        if self.why_down is not None and self._heard_at - oldest <= self.patience.down:
            self.why_down = None
            log.info("gpus.up", seconds=round(self._heard_at - self._begun_at, 2))

    def _take_outage(self, outage: Outage) -> None:
        """A signal that took NVML down is tolerated in the next child: if it fails there too, a new process did not help."""
        self._fall(outage.why)
        self._tolerated = self._tolerated | {outage.signal} if outage.signal not in (None, *NEEDED) else set()

    def _is_hung(self) -> bool:
        """Whether the child has to go. On the way there it counts as down."""
        now = time.monotonic()
        silent = now - (self._heard_at or self._begun_at)
        if silent > self.patience.down:
            self._fall(f"a call into the driver hangs: no sample for more than {self.patience.down:g} s")
        return silent > (self.patience.kill if self._heard_at else self.patience.first)

    def _fall(self, why: str) -> None:
        if why != self.why_down:
            log.warning("gpus.down", why=why)
        self.why_down = why

    def _count_failure(self) -> None:
        was_healthy = self._first_at and self._heard_at - self._first_at >= self.patience.healthy
        self._failures = 1 if was_healthy else self._failures + 1
        self.restarts += 1

    async def _end(self, child: Process, reading: asyncio.Task[None], stopping: asyncio.Event) -> None:
        """Kill the child and see it gone. One that is stuck in the driver cannot be: no other is started beside it."""
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
        reading.cancel()
        await asyncio.wait({reading})
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self._fall(f"the sampling process said what is no sample ({type(error).__name__})")
        gone = asyncio.create_task(child.wait())
        await asyncio.wait({gone}, timeout=1.0)
        while not gone.done() and not stopping.is_set():
            self._fall("the sampling process is stuck in the driver and cannot be killed")
            await asyncio.wait({gone}, timeout=self.patience.check)
        if not gone.done():
            gone.cancel()
        self.child = None


async def _either(stopping: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
