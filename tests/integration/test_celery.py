"""The duties through Celery: a batch goes through whatever happens to Redis, which may be emptied or killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis
from celery import Celery
from celery.schedules import schedule
from pydantic import SecretStr

from scheduler.beat import MOST_WAITING, BoundedScheduler
from scheduler.celery_app import QUEUE, app, broker_of, configuration, task_name
from scheduler.duties.all import DUTIES
from slackwater.embedded.binaries import valkey_server
from slackwater.errors import Misconfigured
from slackwater.lifecycle import BatchState
from slackwater.settings import Settings, settings
from tests.processes import environment, start
from tests.scenario import Scenario, chat_line
from tests.waiting import until

LINES = 40


@dataclass
class Redis:
    """A Valkey at one address, so that it comes back where its clients look for it, and empty."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder / 'redis.sock'}"

    def start(self) -> None:
        socket = str(self.folder / "redis.sock")
        flags = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen([str(valkey_server()), *flags], stdout=subprocess.DEVNULL)
        until(self._answers, 30)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def wipe(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def lengths(self) -> int:
        """Messages that wait in all lists."""
        with redis.Redis.from_url(self.url) as client:
            return sum(int(client.llen(key)) for key in client.scan_iter("*", _type="LIST"))

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


@dataclass
class Host:
    """A database, a Redis, and the processes that a test starts beside them."""

    dsn: str
    redis: Redis
    scenario: Scenario
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *parts: tuple[str, ...]) -> None:
        values = {"SLACKWATER_DATABASE_URL": self.dsn, "SLACKWATER_REDIS_URL": self.redis.url}
        env = environment(**values, SLACKWATER_MASTER_KEY="A" * 43 + "=", SLACKWATER_LEASE_SECONDS="2")
        for part in parts:
            self.running.append(start(*part, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    def submit(self, text: str = "hi") -> int:
        return self.scenario.batch([chat_line(f"r{n}", text) for n in range(LINES)], plan_now=False)

    def state(self, batch_id: int) -> BatchState:
        return BatchState(self.scenario.row(batch_id)["state"])

    def wait_completed(self, batch_id: int) -> None:
        until(lambda: self.state(batch_id).is_final, 90, about=lambda: repr(self.state(batch_id)))
        assert self.state(batch_id) is BatchState.COMPLETED
        assert sorted(line["custom_id"] for line in self.scenario.lines(batch_id)) == sorted(
            f"r{n}" for n in range(LINES)
        )

    def wait_some_done(self, batch_id: int) -> None:
        until(lambda: self.scenario.counts(batch_id).succeeded > 0)


WORKER = ("worker", "--instance", "echo")
CELERY = (("celery", "worker", "--concurrency", "2"), ("celery", "beat"))
SLOW = "echo: sleep=0.5"


@pytest.fixture
def host(dsn: str) -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="slackwater-celery-") as folder, _scenario(dsn) as scenario:
        here = Host(dsn, Redis(Path(folder)), scenario)
        here.redis.start()
        scenario.instance(max_slots=4)
        try:
            yield here
        finally:
            for process in here.running:
                process.kill()
                process.wait(60)
            here.redis.kill()


@contextmanager
def _scenario(dsn: str) -> Iterator[Scenario]:
    scenario = Scenario.on(dsn)
    yield scenario
    scenario.close()


def test_two_workers_and_two_beats_complete_batches(host: Host) -> None:
    host.start(*CELERY, *CELERY, WORKER)
    for _ in range(2):
        host.wait_completed(host.submit())


def test_a_wiped_redis_loses_nothing(host: Host) -> None:
    host.start(*CELERY, WORKER)
    batch_id = host.submit(SLOW)
    host.wait_some_done(batch_id)
    host.redis.wipe()
    host.wait_completed(batch_id)
    host.wait_completed(host.submit())


def test_a_killed_redis_that_comes_back_empty_loses_nothing(host: Host) -> None:
    host.start(*CELERY, WORKER)
    batch_id = host.submit(SLOW)
    host.wait_some_done(batch_id)
    host.redis.kill()
    until(lambda: host.scenario.counts(batch_id).succeeded == LINES)
    assert not host.state(batch_id).is_final
    host.redis.start()
    host.wait_completed(batch_id)
    host.wait_completed(host.submit())


def test_a_redis_that_is_not_there_yet_is_waited_for(host: Host) -> None:
    host.redis.kill()
    host.start(*CELERY, WORKER)
    batch_id = host.submit()
    host.redis.start()
    host.wait_completed(batch_id)


def test_without_a_worker_messages_do_not_pile_up(host: Host) -> None:
    """Expired messages are dropped by the first worker, not run; what one duty may queue in a second stays bounded."""
    host.start(("celery", "beat"))
    until(lambda: host.redis.lengths() >= 10)
    began = time.monotonic()
    host.start(("celery", "worker"))
    until(lambda: host.redis.lengths() <= 2)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_they_stop_when_told(host: Host, number: signal.Signals) -> None:
    host.start(*CELERY)
    batch_id = host.submit()
    until(lambda: host.state(batch_id) is BatchState.IN_PROGRESS)
    for process in host.running:
        os.kill(process.pid, number)
    assert [process.wait(60) for process in host.running] == [0, 0]


def test_beat_is_silent_while_nobody_listens(host: Host) -> None:
    celery = Celery(broker=broker_of(Settings(redis_url=SecretStr(host.redis.url))), set_as_current=False)
    celery.conf.task_default_queue = QUEUE
    beat = BoundedScheduler(app=celery, lazy=True)
    entry = beat.Entry(name="wake", task="duty.wake", schedule=schedule(1.0), app=celery)
    with redis.Redis.from_url(host.redis.url) as client:
        client.lpush(QUEUE, *["full"] * MOST_WAITING)
        beat.apply_entry(entry)
        assert client.llen(QUEUE) == MOST_WAITING
        client.delete(QUEUE)
        beat.apply_entry(entry)
        assert client.llen(QUEUE) == 1
    celery.close()


def test_every_duty_is_a_task_and_is_looked_at_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_REDIS_URL", "redis://127.0.0.1:1/0")
    settings.cache_clear()
    entries = configuration()["beat_schedule"]
    settings.cache_clear()
    expected = {duty.name: (task_name(duty), duty.interval_seconds) for duty in DUTIES}
    assert {name: (entry["task"], entry["schedule"]) for name, entry in entries.items()} == expected
    assert all(entry["options"]["expires"] <= 2 * max(1.0, entry["schedule"]) for entry in entries.values())
    assert {task for task, _ in expected.values()} <= set(app.tasks)


def test_the_broker_is_redis_and_has_to_be_set() -> None:
    assert broker_of(Settings(redis_url=SecretStr("unix:///run/r.sock"))) == "redis+socket:///run/r.sock"
    with pytest.raises(Misconfigured, match="SLACKWATER_REDIS_URL"):
        broker_of(Settings(redis_url=None))
