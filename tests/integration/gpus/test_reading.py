"""What the sampler reads where nothing is wrong: values, several GPUs, MIG, names."""

from __future__ import annotations

import csv
import os
from functools import partial
from pathlib import Path

import pytest

from tests.fake_nvml.driver import Driver
from tests.integration.gpus.conftest import FIRST, HASTY, SECOND, Watch, watching
from workers.gpus.sample import GpuState

TRACE = Path(__file__).parents[2] / "cases" / "HR-03-utilisation-trace.csv"
PART = "MIG-00000001-0000-0000-0000-00000000000{}"


async def test_every_signal_of_a_gpu_is_read(driver: Driver) -> None:
    driver.set({"gpu0.memutil": 11, "gpu0.total": 1000, "gpu0.used": 600, "gpu0.reserved": 100, "gpu0.power": 123456})
    driver.set(
        {"gpu0.processes": 3, "gpu0.gpm": 1, "gpu0.gpm.1": 90, "gpu0.gpm.2": 12.5, "gpu0.gpm.5": 3, "gpu0.gpm.10": 7}
    )

    async with watching(driver) as watch:
        await watch.until(lambda: watch[FIRST].sm_ratio is not None)
        first, second = watch[FIRST], watch[SECOND]

    assert (first.state, first.missing, first.uuid) == (GpuState.OK, {}, FIRST)
    assert (first.busy_ratio, first.memory_busy_ratio, first.power_watts, first.processes) == (0.42, 0.11, 123.456, 3)
    assert (first.memory_used_bytes, first.memory_total_bytes) == (600, 1000), "what the driver reserves is not used"
    assert (first.sm_ratio, first.tensor_ratio, first.dram_ratio) == pytest.approx((0.125, 0.03, 0.07))
    assert (first.mig_enabled, second.busy_ratio, second.missing) == (False, 0.17, {"gpm": "NOT_SUPPORTED"})
    assert second.sm_ratio is None


async def test_admission_gets_ratios_with_their_age(driver: Driver) -> None:
    driver.set({"gpu0.total": 1000, "gpu0.used": 250})

    async with watching(driver, FIRST) as watch:
        assert watch.sampler.readings()[0].age_seconds == float("inf"), "never read is not fresh"
        await watch.until_state(FIRST, GpuState.OK)
        (reading,) = watch.sampler.readings()

    assert 0 <= reading.age_seconds < 1
    assert (reading.uuid, reading.busy_ratio, reading.memory_used_ratio) == (FIRST, 0.42, 0.25)


async def test_an_old_driver_is_read_by_its_older_calls(driver: Driver) -> None:
    driver.set({"gpu0.processes": 2, "gpu0.total": 1000, "gpu0.used": 600, "gpu0.reserved": 100})
    driver.set(
        {f"error.{name}": 13 for name in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3")}
    )
    driver.set(
        {f"error.{name}": 13 for name in ("nvmlDeviceGetSamples", "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetMigMode")}
    )

    async with watching(driver) as watch:
        await watch.until_state(FIRST, GpuState.OK)
        first = watch[FIRST]

    assert (first.busy_ratio, first.processes, first.memory_used_bytes) == (0.42, 2, 700)
    assert first.missing == dict.fromkeys(("freshness", "gpm", "mig"), "FUNCTION_NOT_FOUND")


async def test_a_mig_instance_is_read_by_its_activity(driver: Driver) -> None:
    driver.set({"gpu1.migs": 2, "gpu1.gpm": 1, "gpu1.mig1.gpm.1": 33, "gpu1.mig1.gpm.2": 20})

    async with watching(driver, SECOND, PART.format(1), PART.format(0)) as watch:
        await watch.until(lambda: watch[PART.format(1)].busy_ratio is not None)
        card, part, other = watch[SECOND], watch[PART.format(1)], watch[PART.format(0)]

    assert (part.state, part.busy_ratio, part.sm_ratio) == (GpuState.OK, 0.33, 0.2)
    assert part.memory_used_bytes == 1_000_000_000
    assert (card.mig_enabled, card.mig_instances) == (True, (PART.format(0), PART.format(1)))
    assert (card.state, card.busy_ratio, card.missing["utilisation"]) == (GpuState.PARTIAL, None, "NOT_SUPPORTED")
    assert other.busy_ratio is None, "an instance whose activity is not told is not idle"


async def test_utilisation_comes_back_when_mig_is_turned_off(driver: Driver) -> None:
    driver.set({"gpu1.migs": 2})

    async with watching(driver) as watch:
        await watch.until_missing(SECOND, "utilisation", "NOT_SUPPORTED")
        driver.unset("gpu1.migs")
        await watch.until_state(SECOND, GpuState.OK)
        assert (watch[SECOND].busy_ratio, watch[SECOND].mig_enabled) == (0.17, False)
        assert watch.sampler.restarts == 0


@pytest.mark.parametrize(
    ("visible", "declared", "uuid"),
    [
        (None, "1", SECOND),
        ("1,0", "0", SECOND),
        (SECOND, "0", SECOND),
        ("GPU-00000001", "0", SECOND),
        ("1", FIRST, FIRST),
    ],
)
async def test_names_are_those_of_the_process_beside_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str | None, declared: str, uuid: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    async with watching(driver, declared) as watch:
        await watch.until_state(declared, GpuState.OK)
        assert (watch[declared].uuid, watch[declared].declared) == (uuid, declared)


async def test_a_name_that_is_no_gpu_is_lost_alone(driver: Driver) -> None:
    nobody = "GPU-99999999-0000-0000-0000-000000000000"

    async with watching(driver, FIRST, nobody, "7") as watch:
        await watch.until_state(FIRST, GpuState.OK)
        assert (watch[nobody].state, watch[nobody].why) == (GpuState.LOST, "gpu: NOT_FOUND")
        assert (watch["7"].state, watch["7"].why) == (GpuState.LOST, "gpu: no GPU by this name")
        assert watch[nobody].busy_ratio is None


async def test_the_trace_of_utilisation_is_read_as_it_is(driver: Driver) -> None:
    """HR-03's column `gpu_util` through the driver: -1 is unknown, 100 is full. Deciding by it is the policy's."""
    rows = list(csv.DictReader(TRACE.read_text().splitlines()))

    async with watching(driver, FIRST, every=0.05) as watch:
        for row in rows:
            driver.set({"gpu0.util": row["gpu_util"]})
            expected = None if row["gpu_util"] == "-1" else int(row["gpu_util"]) / 100
            await watch.until(partial(_reads, watch, expected))

    assert len(rows) == 10


def _reads(watch: Watch, busy: float | None) -> bool:
    state = GpuState.PARTIAL if busy is None else GpuState.OK
    return watch[FIRST].state is state and watch[FIRST].busy_ratio == busy


async def test_a_timeline_plays_within_one_process(driver: Driver) -> None:
    driver.set({"@0.8 gpu0.util": 77})

    async with watching(driver, FIRST) as watch:
        await watch.until(lambda: watch[FIRST].busy_ratio == 0.77)
        assert watch.sampler.restarts == 0


async def test_a_sample_costs_little(driver: Driver) -> None:
    """CPU of the child for eight GPUs with everything read, at ten samples a second: the limit is three hundredths of a core."""
    driver.set({"devices": 8} | {f"gpu{n}.gpm": 1 for n in range(8)} | {f"gpu{n}.processes": 4 for n in range(8)})

    async with watching(driver, *map(str, range(8)), patience=HASTY) as watch:
        await watch.until(lambda: watch["7"].state is GpuState.OK)
        before, at = _cpu_seconds(watch), watch["7"].at
        await watch.until(lambda: watch["7"].at - at > 3)
        share = (_cpu_seconds(watch) - before) / (watch["7"].at - at)

    assert share < 0.03, f"{share * 1000:.1f} ms of CPU a second"


def _cpu_seconds(watch: Watch) -> float:
    assert watch.sampler.child is not None
    fields = Path(f"/proc/{watch.sampler.child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
