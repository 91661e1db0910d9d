"""A real worker whose instance declares GPUs, while their driver fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from scheduler.admission import Admit, Hold
from slackwater.explain import Reason
from tests.fake_nvml.driver import Driver
from tests.integration.gpus.conftest import FIRST, SECOND
from tests.scenario import Scenario, chat_line, settings_for
from workers.instance import open_engine, register
from workers.worker import Worker


@pytest.fixture
def installed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The driver, for every process that this one starts. Both GPUs are idle: what nothing explains would be foreign load."""
    driver.set({"gpu0.util": 3, "gpu1.util": 3})
    for name, value in driver.variables.items():
        monkeypatch.setenv(name, value)
    return driver


@asynccontextmanager
async def working(scenario: Scenario, mode: str) -> AsyncIterator[Worker]:
    """A worker beside an instance with two GPUs."""
    scenario.instance()
    scenario.connection.execute("UPDATE instance SET gpus = %s, mode = %s", ([FIRST, SECOND], mode))
    settings = settings_for(scenario.dsn)
    instance = register(settings, "echo")
    worker = Worker(settings, instance, await open_engine(instance, settings))
    running = asyncio.create_task(worker.run())
    yield worker
    worker.stopping.set()
    await running
    assert worker.signals.gpus is not None
    assert worker.signals.gpus.child is None
    scenario.close()


async def until(fact: Callable[[], bool], worker: Worker) -> None:
    async with asyncio.timeout(20):
        while not fact():
            assert not worker.stopping.is_set()
            await asyncio.sleep(0.02)


def holds(worker: Worker, *words: str) -> bool:
    decision = worker.deciding.decision
    if not isinstance(decision, Hold) or decision.reason is not Reason.NO_SIGNAL:
        return False
    return all(word in (decision.details or "") for word in words)


def admits(worker: Worker) -> bool:
    return isinstance(worker.deciding.decision, Admit)


async def test_strict_holds_while_a_reading_is_missing_and_says_which_and_why(dsn: str, installed: Driver) -> None:
    scenario = Scenario.on(dsn)
    async with working(scenario, "strict") as worker:
        await until(lambda: admits(worker), worker)
        installed.set({"gpu1.error.nvmlDeviceGetUtilizationRates": 4})
        await until(lambda: holds(worker, SECOND, "utilisation: NO_PERMISSION"), worker)

        batch_id = scenario.batch([chat_line("only")])
        installed.unset("gpu1.error.nvmlDeviceGetUtilizationRates")
        await until(lambda: bool(scenario.lines(batch_id)), worker)


@pytest.mark.parametrize("mode", ["strict", "balanced", "deadline"])
async def test_a_hung_driver_holds_strict_and_only_that(dsn: str, installed: Driver, mode: str) -> None:
    """Engine and live signals stay fresh; NVML alone may be down where live traffic is measured otherwise."""
    scenario = Scenario.on(dsn)
    async with working(scenario, mode) as worker:
        gpus = worker.signals.gpus
        assert gpus is not None
        await until(lambda: admits(worker) and gpus.why_down is None, worker)
        installed.set({"hang.nvmlDeviceGetUtilizationRates": 3600})
        await until(lambda: "hangs" in (gpus.why_down or ""), worker)
        if mode == "strict":
            await until(lambda: holds(worker, "nvml", "a call into the driver hangs"), worker)
            installed.unset("hang.nvmlDeviceGetUtilizationRates")

        batch_id = scenario.batch([chat_line("one"), chat_line("two")])
        await until(lambda: len(scenario.lines(batch_id)) == 2, worker)
        assert (gpus.why_down is None) == (mode == "strict")


@pytest.mark.parametrize("mode", ["strict", "balanced", "deadline"])
async def test_a_lost_gpu_stops_claims_in_every_mode_until_it_is_back(dsn: str, installed: Driver, mode: str) -> None:
    installed.set({"gpu1.lost": 1})
    scenario = Scenario.on(dsn)
    async with working(scenario, mode) as worker:
        await until(lambda: holds(worker, SECOND, "GPU_IS_LOST"), worker)
        batch_id = scenario.batch([chat_line("only")])
        assert worker.waiting.backlog == worker.waiting.suspects
        assert worker.signals.gpus is not None
        assert worker.signals.gpus.samples()[0].state == "ok"

        installed.unset("gpu1.lost")
        await until(lambda: bool(scenario.lines(batch_id)), worker)
