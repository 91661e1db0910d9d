"""What a database must hold before the parts start: the tenant `default`, a key for it, the instance. Each is made once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from slackwater.errors import Conflict, NotFound

if TYPE_CHECKING:
    from slackwater.cli.place import Place
    from slackwater.settings import Settings
    from slackwater.storage.database import Database
    from slackwater.tenancy.instances import NewInstance

TENANT: Final = "default"
ACTOR: Final = "up"


async def provide(settings: Settings, place: Place, wanted: NewInstance) -> tuple[str, str]:
    """The API key and the name of the instance, both made where they are missing."""
    from slackwater.storage.database import Database

    database = Database(settings.dsn, pool_size=1)
    try:
        await _ensure_tenant(database)
        return await _key(database, place), await _ensure_instance(database, settings, wanted)
    finally:
        await database.close()


async def _ensure_tenant(database: Database) -> None:
    from slackwater.tenancy import tenants

    try:
        async with database.admin() as connection:
            await tenants.find(connection, TENANT)
    except NotFound:
        try:
            async with database.admin() as connection:
                await tenants.create(connection, TENANT, actor=ACTOR)
        except Conflict:
            return


async def _key(database: Database, place: Place) -> str:
    """The key kept in the data directory while this database still takes it, else a new one. Only its hash is stored there."""
    from slackwater.cli.place import read, write
    from slackwater.tenancy import keys

    kept = read(place.api_key)
    if kept is not None:
        async with database.gate() as connection:
            if await keys.recognise(connection, kept) is not None:
                return kept
    async with database.admin() as connection:
        made = await keys.create(connection, TENANT, name="slackwater up", scopes=keys.SCOPES, actor=ACTOR)
    write(place.api_key, made.text)
    return made.text


async def _ensure_instance(database: Database, settings: Settings, wanted: NewInstance) -> str:
    """Its name. One of this name that differs in engine, URL or models is left to its owner, and ours gets another name."""
    from slackwater.sealing import sealer_from
    from slackwater.tenancy import instances

    async with database.admin() as connection:
        known = {row["name"]: row for row in await instances.listed(connection)}
    number = 1
    name = wanted.name
    while name in known and not _fits(known[name], wanted):
        number += 1
        name = f"{wanted.name}-{number}"
    async with database.admin() as connection:
        if name not in known:
            await instances.create(connection, replace(wanted, name=name), sealer_from(settings), actor=ACTOR)
        elif known[name]["disabled_at"] is not None:
            await instances.disable(connection, name, disabled=False, actor=ACTOR)
    return name


def _fits(row: dict[str, Any], wanted: NewInstance) -> bool:
    same_key = bool(wanted.api_key) == row["has_api_key"]
    return same_key and (row["engine"], row["url"], row["models"]) == (wanted.engine, wanted.url, dict(wanted.models))
