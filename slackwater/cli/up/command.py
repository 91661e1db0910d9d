"""`slackwater up`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

if TYPE_CHECKING:
    from slackwater.cli.place import Place
    from slackwater.settings import Settings

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GRACE_SECONDS: Final = "1.5"
ENGINE_KEY: Final = "SLACKWATER_ENGINE_API_KEY"


def up(
    data: Annotated[Path | None, typer.Option(help="Where everything is kept.", file_okay=False)] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port of the API: without it 8000 or, if taken, a free one."),
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="local|echo|URL", help=f"What runs requests; the key for a URL is in {ENGINE_KEY}.")
    ] = "local",
    print_env: Annotated[bool, typer.Option(help="Print two lines for a shell once ready, and nothing else.")] = False,
) -> None:
    """Run everything on this machine, until Ctrl-C."""
    with _interruptible():
        _up(data, port, engine, print_env=print_env)


def _up(data: Path | None, port: int | None, engine: str, *, print_env: bool) -> None:
    from slackwater.cli.place import Place
    from slackwater.cli.up.database import database_for
    from slackwater.cli.up.engines import instance_for
    from slackwater.cli.up.first_start import provide
    from slackwater.cli.up.ports import port_for
    from slackwater.cli.up.supervisor import Supervisor
    from slackwater.settings import settings
    from slackwater.storage import migrate

    own = settings()
    place = Place.of(own, data)
    chosen_port = port_for(own, port)
    wanted = instance_for(engine, os.environ.get(ENGINE_KEY))
    place.prepare()
    dsn = own.database_url.get_secret_value() if own.database_url is not None else None
    with database_for(dsn, place, tell) as database:
        used = _settings(own, place, database.dsn, chosen_port)
        migrate.upgrade(database.dsn)
        key, instance = asyncio.run(provide(used, place, wanted))
        tell("starting the parts")
        supervisor = Supervisor(used, database, _environment(used), place.logs, instance, tell)
        try:
            asyncio.run(
                supervisor.run(lambda url: _announce(place, used, url, key, wanted.models, print_env=print_env))
            )
        finally:
            place.running.unlink(missing_ok=True)
            _ignore_signals()


def tell(message: str) -> None:
    """Say to a person what goes on; standard output is kept for what they asked for."""
    sys.stderr.write(f"slackwater: {message}\n")
    sys.stderr.flush()


def _settings(own: Settings, place: Place, dsn: str, port: int) -> Settings:
    from pydantic import SecretStr

    master_key = own.master_key or SecretStr(place.ensure_master_key())
    return own.model_copy(update={"database_url": SecretStr(dsn), "master_key": master_key, "port": port})


def _environment(used: Settings) -> dict[str, str]:
    """Of the parts: they read the settings from it, and run the very code that runs here."""
    import slackwater

    assert used.master_key is not None
    root = str(Path(slackwater.__file__).parents[1])
    kept = {name: value for name, value in os.environ.items() if name != ENGINE_KEY}
    return (
        {"SLACKWATER_GRACE_SECONDS": GRACE_SECONDS}
        | kept
        | {
            "SLACKWATER_DATABASE_URL": used.dsn,
            "SLACKWATER_MASTER_KEY": used.master_key.get_secret_value(),
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        }
    )


def _announce(place: Place, used: Settings, url: str, key: str, models: Iterable[str], *, print_env: bool) -> None:
    from slackwater.cli.place import Running, write

    url = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    write(place.running, json.dumps(asdict(Running(used.dsn, url))))
    typer.echo(f"SLACKWATER_URL={url}\nSLACKWATER_API_KEY={key}" if print_env else _welcome(place, url, key, models))
    sys.stdout.flush()


def _welcome(place: Place, url: str, key: str, models: Iterable[str]) -> str:
    return f"""
Slackwater is up at {url}
  API key   {key}
            (kept in {place.api_key}; `{_finding(place)}slackwater keys create` makes more)
  model     {", ".join(models)}
  logs      {place.logs}

Submit a batch with the openai package:

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  file = client.files.create(file=open("requests.jsonl", "rb"), purpose="batch")
  client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")

or from another terminal:

  SLACKWATER_URL={url} SLACKWATER_API_KEY={key} slackwater batches submit requests.jsonl --wait

Ctrl-C stops everything.
"""


def _finding(place: Place) -> str:
    """What a command in another terminal needs before it, to find a place that is not the usual one."""
    from slackwater.settings import settings

    return "" if place.of(settings()) == place else f"SLACKWATER_DATA_DIR={shlex.quote(str(place.path))} "


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a start as Ctrl-C does; a stop that was asked for is a success."""
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        tell("stopped before it was up")
        raise typer.Exit(130) from None


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    """The stop has begun and is short; a second signal must not leave it half done."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
