"""The child process: it dies with its parent, is replaced when it is killed, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest
import uvloop

from tests.fake_nvml.driver import Driver
from tests.integration.gpus.conftest import FIRST, HASTY, SECOND, children_of, watching
from tests.waiting import until_async
from workers.gpus.sample import GpuState
from workers.gpus.sampler import GpuSampler

ROOT = Path(__file__).parents[3]
PARENT = """
import asyncio, sys
from workers.gpus.sampler import GpuSampler
async def main():
    sampler = GpuSampler((sys.argv[1],))
    asyncio.get_running_loop().create_task(sampler.run(asyncio.Event()))
    while not (sampler.newest or "hangs" in sampler.why_down):
        await asyncio.sleep(0.01)
    print(sampler.child.pid, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


@pytest.mark.parametrize("call", ["fine", "hung"])
async def test_the_child_ends_when_its_parent_is_killed(driver: Driver, call: str) -> None:
    if call == "hung":
        driver.set({"hang.nvmlDeviceGetCount_v2": 3600})
    environment = driver.environment | {"PYTHONPATH": str(ROOT)}
    arguments = (sys.executable, "-c", PARENT, FIRST)
    parent = await asyncio.create_subprocess_exec(*arguments, stdout=PIPE, stderr=DEVNULL, env=environment)
    assert parent.stdout is not None
    child = int(await _pid_line(parent.stdout))
    assert _is_running(child)

    parent.kill()
    await parent.communicate()

    await until_async(lambda: not _is_running(child), 5)


async def _pid_line(output: asyncio.StreamReader) -> bytes:
    """The first line that is a number; before it come log lines."""
    while line := await output.readline():
        if line.strip().isdigit():
            return line
    return b""


def _is_running(pid: int) -> bool:
    """Alive: neither gone nor dead and waiting for whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_killed_child_is_replaced(driver: Driver) -> None:
    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        child = watch.sampler.child
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        await watch.until_missing(FIRST, "nvml", "the sampling process ended (-9)")
        await watch.until_state(FIRST, GpuState.OK)
        assert len(children_of(os.getpid())) == 1


async def test_a_stopped_child_is_replaced(driver: Driver) -> None:
    """A process that does nothing at all looks like a hung driver."""
    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        child = watch.sampler.child
        assert child is not None
        os.kill(child.pid, signal.SIGSTOP)
        await watch.until(lambda: child.returncode == -9)
        await watch.until_state(FIRST, GpuState.OK)


async def test_many_restarts_leave_no_dead_process(driver: Driver) -> None:
    driver.set({"error.nvmlInitWithFlags": 9})

    async with watching(driver) as watch:
        await watch.until(lambda: watch.sampler.restarts == 5)
        assert len(children_of(os.getpid())) <= 1


async def test_stopping_ends_a_hung_child_too(driver: Driver) -> None:
    driver.set({"hang.nvmlInitWithFlags": 3600})
    sampler = GpuSampler((FIRST,), patience=HASTY, environment=driver.environment)
    stopping = asyncio.Event()
    task = asyncio.create_task(sampler.run(stopping))
    await until_async(lambda: sampler.child is not None, 5)
    stopping.set()
    await asyncio.wait_for(task, 5)

    assert children_of(os.getpid()) == []
    assert sampler.samples()[0].why == "nvml: stopped"


async def test_an_old_binding_is_refused_by_name_in_the_child(driver: Driver, tmp_path: Path) -> None:
    """It may be installed while the worker runs; the child that starts next says so, and is tried again."""
    package = tmp_path / "site" / "pynvml"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    sampler = GpuSampler(
        (FIRST,), 0.1, HASTY, driver.environment | {"PYTHONPATH": str(package.parent), "PYTHONWARNINGS": "error"}
    )
    stopping = asyncio.Event()
    task = asyncio.create_task(sampler.run(stopping))
    await until_async(lambda: "`pynvml` shadows `nvidia-ml-py`" in (sampler.why_down or ""), 10)
    stopping.set()
    await task


def test_it_runs_on_the_loop_of_the_worker(driver: Driver) -> None:
    async def sample() -> float | None:
        async with watching(driver) as watch:
            await watch.until_state(SECOND, GpuState.OK)
            return watch[SECOND].busy_ratio

    assert uvloop.run(sample()) == 0.17
