"""The `slackwater` command. It imports a part only when that part is run."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import NoReturn

import typer

from slackwater.cli import (
    batches,
    conformance,
    headroom,
    instances,
    keys,
    migrate,
    models,
    parts,
    prices,
    projects,
    settings,
    simulate,
    tenants,
)
from slackwater.cli.up import command as up

app = typer.Typer(
    name="slackwater",
    help="A durable queue for model inference that runs in the time live traffic leaves.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("up")(up.up)
app.command("api")(parts.api)
app.command("worker")(parts.worker)
app.command("duties")(parts.duties)
app.command("dispatch")(parts.dispatch)
app.command("celery")(parts.celery)
app.command("migrate")(migrate.migrate)
app.command("simulate")(simulate.simulate)
app.command("settings")(settings.settings)
app.command("headroom")(headroom.headroom)
app.command("conformance")(conformance.conformance)
for module in (batches, tenants, projects, keys, models, prices, instances):
    app.add_typer(module.app)


def main() -> None:
    """Run the command line. What a person can set right ends with one line on stderr and exit status 1."""
    # What lives until the exit is the system's to free: collecting it took each part 0.15 s of CPU.
    atexit.register(gc.freeze)
    try:
        app()
    except Exception as error:
        _end(error)


def _end(error: Exception) -> NoReturn:
    from psycopg import OperationalError
    from pydantic import ValidationError
    from pydantic_settings import SettingsError
    from sqlalchemy.exc import OperationalError as PoolError

    from slackwater.embedded.errors import EmbeddedServerError
    from slackwater.errors import SlackwaterError

    if isinstance(error, PoolError | OperationalError):
        message = "the database does not answer, or refuses this user (SLACKWATER_DATABASE_URL)"
    elif isinstance(error, SlackwaterError | EmbeddedServerError | SettingsError):
        message = str(error)
    elif isinstance(error, ValidationError) and error.title == "Settings":
        wrong = [
            f"SLACKWATER_{str(fault['loc'][0]).upper()}: {fault['msg']}" for fault in error.errors() if fault["loc"]
        ]
        message = "; ".join(wrong)
    else:
        raise error
    sys.stderr.write(f"slackwater: {message}\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
