"""Case HR-01 with the real child process: the sampler lives through every fault, says what is missing and why, and recovers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.fake_nvml.driver import Driver
from tests.integration.gpus.conftest import FIRST, SECOND, Watch, watching
from workers.gpus.sample import GpuState

CASES: Final = json.loads((Path(__file__).parents[2] / "cases" / "HR-01-nvml-faults.json").read_text())["reader faults"]
INIT: Final = "error.nvmlInitWithFlags"
RATES: Final = "gpu0.error.nvmlDeviceGetUtilizationRates"
STALE: Final = "OK but utilisation stale by 20 s"


@dataclass(frozen=True)
class Fault:
    """What the driver does, what the sampler then says of the first GPU, and whether the second one goes on."""

    keys: Callable[[], Mapping[str, object]]
    state: GpuState
    signal: str
    why: str
    spares_second: bool = True


def _always(key: str, value: object) -> Callable[[], Mapping[str, object]]:
    return lambda: {key: value}


def _down(key: str, code: int, why: str) -> Fault:
    return Fault(_always(key, code), GpuState.DOWN, "nvml", why, spares_second=False)


FAULTS: Final[dict[tuple[str, str], Fault]] = {
    ("nvmlInit", "LIBRARY_NOT_FOUND"): _down(INIT, 12, "LIBRARY_NOT_FOUND"),
    ("nvmlInit", "DRIVER_NOT_LOADED"): _down(INIT, 9, "DRIVER_NOT_LOADED"),
    ("nvmlInit", "LIB_RM_VERSION_MISMATCH"): _down(INIT, 18, "LIB_RM_VERSION_MISMATCH"),
    ("nvmlInit", "UNKNOWN (container lost its device nodes)"): _down(INIT, 999, "UNKNOWN"),
    ("getUtilizationRates", "NOT_SUPPORTED (MIG parent, Jetson, vGPU)"): Fault(
        _always(RATES, 3), GpuState.PARTIAL, "utilisation", "NOT_SUPPORTED"
    ),
    ("getUtilizationRates", "UNKNOWN (WSL)"): Fault(_always(RATES, 999), GpuState.PARTIAL, "utilisation", "UNKNOWN"),
    ("getUtilizationRates", "NO_PERMISSION"): Fault(
        _always(RATES, 4), GpuState.PARTIAL, "utilisation", "NO_PERMISSION"
    ),
    ("getUtilizationRates", "GPU_IS_LOST"): Fault(_always(RATES, 15), GpuState.LOST, "gpu", "GPU_IS_LOST"),
    ("getUtilizationRates", "TIMEOUT / hangs 30 s"): Fault(
        _always(RATES.replace("error", "hang"), 30), GpuState.DOWN, "nvml", "hangs", spares_second=False
    ),
    ("getMemoryInfo", STALE): Fault(
        lambda: {"gpu0.sampled_at": time.time() - 20}, GpuState.PARTIAL, "utilisation", "stale"
    ),
}


def _fault(case: list[str]) -> Fault:
    """A fault of the case file; one that is not played here fails."""
    return FAULTS[case[0], case[1]]


def _only_told_figures(watch: Watch) -> None:
    """Unknown was never read as idle nor as busy, and what was read is what the driver said."""
    told = {FIRST: {None, 0.42}, SECOND: {None, 0.17}}
    assert all(sample.busy_ratio in told[sample.declared] for sample in watch.seen)


@pytest.mark.parametrize("case", CASES, ids=": ".join)
async def test_a_fault_while_it_runs(driver: Driver, case: list[str]) -> None:
    """The fault begins in a running sampler. One of `nvmlInit` shows when the next process starts: the old library dies first."""
    fault = _fault(case)

    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        keys = fault.keys()
        driver.set(keys)
        if case[0] == "nvmlInit":
            driver.set({"driver": 2})
        await watch.until_missing(FIRST, fault.signal, fault.why)
        assert watch[FIRST].state is fault.state
        if fault.spares_second:
            before = watch[SECOND].at
            await watch.until(lambda: watch[SECOND].at > before and watch[SECOND].state is GpuState.OK)

        driver.unset(*keys)
        await watch.until_state(FIRST, GpuState.OK)
        assert (watch[FIRST].busy_ratio, watch[SECOND].busy_ratio) == (0.42, 0.17)
        _only_told_figures(watch)


@pytest.mark.parametrize("case", CASES, ids=": ".join)
async def test_a_fault_from_the_start(driver: Driver, case: list[str]) -> None:
    fault = _fault(case)
    keys = fault.keys()
    driver.set(keys)

    async with watching(driver) as watch:
        await watch.until_missing(FIRST, fault.signal, fault.why)
        assert (watch[FIRST].state, watch[FIRST].busy_ratio) == (fault.state, None)

        driver.unset(*keys)
        await watch.until(lambda: watch[FIRST].state is watch[SECOND].state is GpuState.OK)
        _only_told_figures(watch)


async def test_a_lost_gpu_is_quarantined_alone_until_it_is_back(driver: Driver) -> None:
    """NVML has to be initialised again to see it; no new process is needed."""
    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        driver.set({"gpu0.lost": 1})
        await watch.until_state(FIRST, GpuState.LOST)
        assert (watch[FIRST].busy_ratio, watch[FIRST].why) == (None, "gpu: GPU_IS_LOST")

        lost_at = watch[FIRST].at
        await watch.until(lambda: watch[FIRST].at > lost_at + 1.5)
        assert watch[SECOND].state is GpuState.OK
        driver.unset("gpu0.lost")
        await watch.until_state(FIRST, GpuState.OK)
        assert watch.sampler.restarts == 0
        assert all(
            sample.state is GpuState.OK for sample in watch.seen[1:] if sample.declared == SECOND and sample.at > 0
        )


async def test_a_reset_gpu_is_quarantined_too(driver: Driver) -> None:
    async with watching(driver) as watch:
        driver.set({"gpu1.error.nvmlDeviceGetMemoryInfo_v2": 16})
        await watch.until_state(SECOND, GpuState.LOST)
        assert (watch[SECOND].why, watch[FIRST].state) == ("gpu: RESET_REQUIRED", GpuState.OK)


async def test_a_hung_call_is_down_within_two_seconds_and_its_process_replaced(driver: Driver) -> None:
    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        child = watch.sampler.child
        driver.set({"gpu0.hang.nvmlDeviceGetPowerUsage": 3600})
        assert await watch.until_state(FIRST, GpuState.DOWN) < 2
        assert watch[SECOND].why == "nvml: a call into the driver hangs: no sample for more than 1 s"

        await watch.until(lambda: watch.sampler.child is not None and watch.sampler.child is not child)
        assert child is not None
        assert child.returncode == -9
        driver.unset("gpu0.hang.nvmlDeviceGetPowerUsage")
        await watch.until_state(FIRST, GpuState.OK)
        _only_told_figures(watch)


async def test_initialising_may_hang(driver: Driver) -> None:
    driver.set({"hang.nvmlInitWithFlags": 3600})

    async with watching(driver) as watch:
        await watch.until(lambda: watch.sampler.restarts == 2)
        assert watch[FIRST].state is GpuState.DOWN
        driver.unset("hang.nvmlInitWithFlags")
        await watch.until_state(FIRST, GpuState.OK)


async def test_slow_calls_leave_old_figures_old(driver: Driver) -> None:
    """A look that takes longer than a second is as old as its beginning: it never reads as fresh."""
    driver.set({"gpu0.hang.nvmlDeviceGetPowerUsage": 1.3})

    async with watching(driver) as watch:
        await watch.until(lambda: len({sample.at for sample in watch.seen if sample.declared == FIRST}) > 2)
        assert all(sample.state is GpuState.DOWN for sample in watch.seen)
        assert watch.sampler.restarts == 0


async def test_a_replaced_driver_needs_and_gets_a_new_process(driver: Driver) -> None:
    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        child = watch.sampler.child
        driver.set({"driver": 2})
        await watch.until_missing(FIRST, "nvml", "LIB_RM_VERSION_MISMATCH")
        await watch.until_state(FIRST, GpuState.OK)
        assert child is not None
        assert (child.returncode, watch.sampler.restarts) == (3, 1)


async def test_a_library_that_is_not_there_is_found_once_it_is(driver: Driver) -> None:
    driver.remove()

    async with watching(driver) as watch:
        await watch.until_missing(FIRST, "nvml", "LIBRARY_NOT_FOUND")
        driver.install()
        await watch.until_state(FIRST, GpuState.OK)


async def test_forgotten_initialisation_is_made_up_for_in_the_same_process(driver: Driver) -> None:
    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        child, before = watch.sampler.child, watch[FIRST].at
        driver.set({"epoch": 1, "gpu0.util": 43})
        await watch.until(lambda: watch[FIRST].busy_ratio == 0.43)
        assert (watch.sampler.child, watch[FIRST].state) == (child, GpuState.OK)
        assert watch[FIRST].at > before


async def test_initialisation_that_does_not_last_takes_a_new_process(driver: Driver) -> None:
    driver.set({"gpu0.error.nvmlDeviceGetMemoryInfo_v2": 1})

    async with watching(driver) as watch:
        await watch.until_missing(FIRST, "nvml", "UNINITIALIZED, also after it was initialised again")
        driver.unset("gpu0.error.nvmlDeviceGetMemoryInfo_v2")
        await watch.until_state(FIRST, GpuState.OK)


async def test_memory_that_fails_for_an_unknown_cause_never_settles(driver: Driver) -> None:
    """Only signals that can be done without are given up; NVML as a whole stays down and is tried again."""
    driver.set({"gpu0.error.nvmlDeviceGetMemoryInfo_v2": 999})

    async with watching(driver) as watch:
        await watch.until(lambda: watch.sampler.restarts == 3)
        assert watch[FIRST].state is GpuState.DOWN
        assert all(sample.busy_ratio is None for sample in watch.seen)


@pytest.mark.parametrize(
    ("function", "signal", "field"),
    [
        ("nvmlDeviceGetPowerUsage", "power", "power_watts"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "processes", "processes"),
        ("nvmlDeviceGetMigMode", "mig", "mig_enabled"),
        ("nvmlDeviceGetMemoryInfo_v2", "memory", "memory_used_bytes"),
    ],
)
async def test_each_signal_is_missed_alone(driver: Driver, function: str, signal: str, field: str) -> None:
    driver.set({f"gpu0.error.{function}": 4})

    async with watching(driver) as watch:
        await watch.until_missing(FIRST, signal, "NO_PERMISSION")
        assert getattr(watch[FIRST], field) is None
        assert getattr(watch[SECOND], field) is not None
        assert watch[FIRST].busy_ratio == 0.42
        driver.unset(f"gpu0.error.{function}")
        await watch.until(lambda: getattr(watch[FIRST], field) is not None)
        assert signal not in watch[FIRST].missing


async def test_nothing_running_is_no_process_not_an_unknown_number(driver: Driver) -> None:
    driver.set({"gpu0.error.nvmlDeviceGetComputeRunningProcesses_v3": 6})

    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        assert watch[FIRST].processes == 0
