"""Two GPUs of a fake driver, and the real sampler with its real child process on them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.fake_nvml.driver import Driver, build
from workers.gpus.sample import GpuSample, GpuState
from workers.gpus.sampler import GpuSampler, Patience

FIRST: Final = "GPU-00000000-0000-0000-0000-000000000000"
SECOND: Final = "GPU-00000001-0000-0000-0000-000000000000"
TWO_GPUS: Final[Mapping[str, object]] = {"devices": 2, "gpu0.util": 42, "gpu1.util": 17}
HASTY: Final = Patience(down=1.0, kill=2.0, first=2.0, restart=0.1, restart_most=0.5, check=0.05)
LIMIT_SECONDS: Final = 20.0


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fake_nvml"))


@pytest.fixture
def driver(tmp_path: Path, nvml_library: Path) -> Driver:
    made = Driver(tmp_path, nvml_library)
    made.set(TWO_GPUS)
    return made


@dataclass
class Watch:
    """A running sampler. Every sample that was seen while waiting stays in `seen`."""

    sampler: GpuSampler
    task: asyncio.Task[None]
    seen: list[GpuSample] = field(default_factory=list)

    def __getitem__(self, gpu: str) -> GpuSample:
        return next(sample for sample in self.sampler.samples() if sample.declared == gpu)

    async def until(self, fact: Callable[[], bool]) -> float:
        """Wait for a fact; return how many seconds that took. The sampler has to live meanwhile."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not fact():
            assert not self.task.done(), "the sampler ended"
            assert loop.time() - begun < LIMIT_SECONDS, (self.sampler.why_down, self.sampler.samples())
            self.seen += self.sampler.samples()
            await asyncio.sleep(0.01)
        self.seen += self.sampler.samples()
        return loop.time() - begun

    async def until_state(self, gpu: str, state: GpuState) -> float:
        return await self.until(lambda: self[gpu].state is state)

    async def until_missing(self, gpu: str, signal: str, why: str) -> float:
        return await self.until(lambda: why in self[gpu].missing.get(signal, ""))


@asynccontextmanager
async def watching(driver: Driver, *gpus: str, patience: Patience = HASTY, every: float = 0.1) -> AsyncIterator[Watch]:
    """A sampler of these GPUs; when it has stopped, no process of it is left, not even a dead one."""
    environment = driver.environment | {key: os.environ[key] for key in ("CUDA_VISIBLE_DEVICES",) if key in os.environ}
    sampler = GpuSampler(gpus or (FIRST, SECOND), every, patience, environment)
    stopping = asyncio.Event()
    watch = Watch(sampler, asyncio.create_task(sampler.run(stopping)))
    try:
        yield watch
    finally:
        stopping.set()
        await watch.task
    assert children_of(os.getpid()) == []


def children_of(parent: int) -> list[str]:
    """The stat lines of the sampling processes, and of dead ones, that are children of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, ppid = stat.rpartition(")")[2].split()[:2]
            if int(ppid) == parent and (state == "Z" or b"workers.gpus.child" in command):
                found.append(stat)
    return found
