"""The duties through Celery on Redis: Celery carries "look now", the database says what is due.

A message holds nothing but the name of a duty, is of no use after a few seconds and expires by then. Redis may lose every message at any
moment: beat says it again within the interval. Run it with `slackwater celery worker` and `slackwater celery beat`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from celery import Celery
from celery.signals import setup_logging
from psycopg import Connection, OperationalError
from psycopg.rows import TupleRow

from scheduler.duties import Duty
from scheduler.duties.all import DUTIES
from slackwater.errors import Misconfigured
from slackwater.settings import Settings, settings
from slackwater.storage.connections import connect
from slackwater.telemetry import DUTY_SECONDS, configure_logs

QUEUE: Final = "slackwater.duties"
# A task steps on while there is something to do; the next "look now" goes on where it left off.
MOST_SECONDS: Final = 5.0
REDIS_TIMEOUT_SECONDS: Final = 5.0


class _Held(threading.local):
    """The connection of this process (of this thread, in a pool of threads)."""

    connection: Connection[TupleRow] | None = None


_held = _Held()


def broker_of(chosen: Settings) -> str:
    """Celery's name for the Redis URL.

    Raises:
        Misconfigured: none is set.
    """
    if chosen.redis_url is None:
        raise Misconfigured("SLACKWATER_REDIS_URL is not set: Celery carries its messages through Redis")
    return chosen.redis_url.get_secret_value().replace("unix://", "redis+socket://", 1)


def configuration() -> dict[str, Any]:
    """Read when it is first needed, so that importing this module needs no Redis.

    No result backend, no remote control and no exchange: a queue is then one Redis list that the next message makes anew.
    """
    return {
        "broker_url": broker_of(settings()),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            "socket_timeout": REDIS_TIMEOUT_SECONDS,
            "socket_connect_timeout": REDIS_TIMEOUT_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "visibility_timeout": 60,
        },
        "task_default_queue": QUEUE,
        "task_ignore_result": True,
        "task_acks_late": False,
        "worker_prefetch_multiplier": 1,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "beat_scheduler": "scheduler.beat:BoundedScheduler",
        "beat_max_loop_interval": 1,
        "beat_schedule": {duty.name: _entry(duty) for duty in DUTIES},
    }


def _entry(duty: Duty) -> dict[str, Any]:
    expires = max(2.0, 2 * duty.interval_seconds)
    return {"task": task_name(duty), "schedule": duty.interval_seconds, "options": {"expires": expires}}


def task_name(duty: Duty) -> str:
    return f"duty.{duty.name}"


def look(duty: Duty) -> int:
    """Step a duty until nothing is due or its time is over; returns how much it did. A broken connection is dropped."""
    until = time.monotonic() + MOST_SECONDS
    done = 0
    try:
        while step := _step(duty):
            done += step
            if time.monotonic() > until:
                break
    except OperationalError:
        _drop()
        raise
    return done


def _step(duty: Duty) -> int:
    if _held.connection is None or _held.connection.closed:
        _held.connection = connect(settings().dsn)
    with DUTY_SECONDS.labels(duty.name).time():
        return duty.step(_held.connection, settings())


def _drop() -> None:
    if _held.connection is not None:
        _held.connection.close()
        _held.connection = None


def _task_of(duty: Duty) -> Callable[[], int]:
    def task() -> int:
        return look(duty)

    task.__name__ = duty.name
    return task


app = Celery("slackwater", set_as_current=False)
app.add_defaults(configuration)
for _duty in DUTIES:
    app.task(name=task_name(_duty), ignore_result=True)(_task_of(_duty))


def _log(**_: object) -> None:
    """Our log format also where it was started with `celery -A scheduler.celery_app:app`; its own messages from WARNING on."""
    configure_logs(settings().log_format)


setup_logging.connect(_log)


def run_worker(concurrency: int) -> None:
    """Run duties until SIGTERM or SIGINT."""
    flags = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING"]
    app.worker_main(["worker", f"--concurrency={concurrency}", f"--hostname=duties-{os.getpid()}@%h", *flags])


def run_beat() -> None:
    """Say "look now" for every duty at its interval until SIGTERM or SIGINT. It keeps no file."""
    app.start(["beat", "--pidfile=", "--loglevel=WARNING"])
