"""The parts of an installation, each a process: `slackwater up` runs them all, a deployment runs them one by one."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from slackwater.cli.up import lifeline

if TYPE_CHECKING:
    from slackwater.settings import Settings

MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Serve Prometheus metrics on this port of 127.0.0.1.")
]


def begin(metrics_port: int | None = None) -> Settings:
    """What every part does first: end with the `up` that started it, log, serve its metrics where asked."""
    lifeline.hold_if_given()
    from slackwater.settings import settings
    from slackwater.telemetry import REGISTRY, configure_logs

    configure_logs(settings().log_format)
    if metrics_port is not None:
        from prometheus_client import start_http_server

        start_http_server(metrics_port, "127.0.0.1", registry=REGISTRY)
    return settings()


def api(
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = None,
) -> None:
    """Serve the REST API. Says `ready URL` on standard output once it accepts connections."""
    settings = begin()
    from api.server import serve
    from slackwater.errors import Misconfigured

    asked = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    chosen = settings.model_copy(update=asked)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _succeed)
    try:
        serve(chosen)
    except OSError as error:
        raise Misconfigured(f"cannot listen on {chosen.host}:{chosen.port}: {error.strerror}") from error


def worker(
    instance: Annotated[str, typer.Option(help="The name of the instance this worker stands beside.")],
    metrics_port: MetricsPort = None,
) -> None:
    """Run batch requests on one instance, in the time its live traffic leaves."""
    settings = begin(metrics_port)
    from workers.main import main

    main(settings, instance)
    # All is stored; taking torch apart would last seconds more.
    sys.stderr.flush()
    os._exit(0)


def duties(metrics_port: MetricsPort = None) -> None:
    """Run the duties in one process: validate, rescue, expire, finalise, purge. Several processes do no harm."""
    settings = begin(metrics_port)
    from scheduler.duties.main import main

    main(settings, _ready)


def dispatch(metrics_port: MetricsPort = None) -> None:
    """Deliver webhooks. Several processes do no harm."""
    settings = begin(metrics_port)
    from scheduler.dispatch.loop import main

    main(settings, _ready)


def celery(
    part: Annotated[str, typer.Argument(help="`worker` or `beat`.", metavar="worker|beat")],
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Processes of a worker.")] = 2,
) -> None:
    """Run the duties through Celery instead: a worker, or the beat that says "look now". Several of each do no harm."""
    begin()
    from scheduler.celery_app import run_beat, run_worker

    if part == "worker":
        run_worker(concurrency)
    elif part == "beat":
        run_beat()
    else:
        raise typer.BadParameter("worker or beat")


def _ready() -> None:
    """Say so to whoever started this process, as the API does."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def _succeed(_number: int, _frame: FrameType | None) -> NoReturn:
    """uvicorn raises the signal that stopped it once more at its end; being told to stop is no failure."""
    raise SystemExit(0)
