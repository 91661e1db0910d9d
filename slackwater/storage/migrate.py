"""Bring a database to a revision. `pre_` revisions go before new code, `post_` ones after it."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Final, Literal

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import make_url

from slackwater.storage.tables import METADATA

Phase = Literal["pre", "post"]
LOCK: Final = 0x51AC4A7E


def engine_of(dsn: str) -> Engine:
    """An engine as the login role itself: the owner of the schema."""
    return create_engine(make_url(dsn).set(drivername="postgresql+psycopg"), hide_parameters=True)


def upgrade(dsn: str, phase: Phase | None = None) -> str | None:
    """Upgrade to the newest revision; with phase `pre`, up to the next pending `post_` one. Returns the revision reached.

    Two at once are safe: one waits for the other and finds nothing to do.
    """
    return _run(dsn, lambda config, connection: command.upgrade(config, _target(config, connection, phase)))


def downgrade(dsn: str, revision: str = "base") -> str | None:
    """Downgrade to `revision`; `base` leaves an empty database."""
    return _run(dsn, lambda config, connection: command.downgrade(config, revision))


def drift(dsn: str) -> list[str]:
    """Where the database differs from `slackwater.storage.tables`; empty when they are equal. Partitions are not compared."""
    engine = engine_of(dsn)
    options = {"compare_type": True, "include_object": _is_ours}
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts=options), METADATA)
    engine.dispose()
    return [str(difference) for difference in found]


def _is_ours(_: object, name: str | None, kind: str, reflected: bool, compared: object) -> bool:
    return not (kind == "table" and reflected and re.fullmatch(r"(request|result)_w\d+", name or ""))


def _target(config: Config, connection: Connection, phase: Phase | None) -> str:
    if phase != "pre":
        return "head"
    now = MigrationContext.configure(connection).get_current_revision()
    pending = list(reversed(list(ScriptDirectory.from_config(config).iterate_revisions("head", now or "base"))))
    reached = now or "base"
    for script in pending:
        if script.revision.startswith("post_"):
            break
        reached = script.revision
    return reached


def _run(dsn: str, step: Callable[[Config, Connection], None]) -> str | None:
    engine = engine_of(dsn)
    with as_file(files("migrations")) as scripts, engine.connect() as connection:
        config = Config()
        config.set_main_option("script_location", str(scripts))
        config.attributes["connection"] = connection
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
        try:
            connection.commit()
            step(config, connection)
            connection.commit()
            revision = MigrationContext.configure(connection).get_current_revision()
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": LOCK})
            connection.commit()
    engine.dispose()
    return revision


def newest() -> str | None:
    """The revision that this code was written for."""
    with as_file(files("migrations")) as scripts:
        config = Config()
        config.set_main_option("script_location", str(scripts))
        return ScriptDirectory.from_config(config).get_current_head()
