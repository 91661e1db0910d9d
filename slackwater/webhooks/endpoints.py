"""The endpoints of a tenant: plain reads and writes in the caller's transaction, which is the tenant's own (`Database.tenant`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, RowMapping, and_, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import ids
from slackwater.errors import InvalidRequest, NotFound
from slackwater.outbox import EVENT_TYPES
from slackwater.sealing import Sealer
from slackwater.settings import Settings
from slackwater.storage.tables import endpoint
from slackwater.webhooks import signing, signing_secrets, targets

MAX_NAME_CHARACTERS: Final = 256
DISABLED_BY_CALLER: Final = "disabled_by_caller"


@dataclass(frozen=True, slots=True)
class Created:
    """A new endpoint. `signing_secret` is shown now and never again."""

    public_id: str
    signing_secret: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint as its owner sees it; `hint` is of the newest secret."""

    id: int
    public_id: str
    name: str
    url: str
    event_types: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    disabled_at: datetime | None
    disabled_reason: str | None
    hint: str | None


async def create(
    connection: AsyncConnection,
    *,
    sealer: Sealer,
    settings: Settings,
    tenant_id: int,
    project_id: int,
    url: str,
    event_types: Sequence[str],
    name: str = "",
    batch_id: int | None = None,
) -> Created:
    """Add an endpoint with its first secret. With `batch_id` it is the `webhook` of that batch and gets no other's events.

    Raises:
        InvalidRequest: the URL, an event type or the name may not be used.
    """
    public_id = ids.new("we_")
    row = {
        "tenant_id": tenant_id,
        "project_id": project_id,
        "public_id": public_id,
        "batch_id": batch_id,
        "name": _name(name),
        "url": _sealed_url(sealer, settings, tenant_id, public_id, url),
        "event_types": _types(event_types),
    }
    endpoint_id = (await connection.execute(insert(endpoint).values(row).returning(endpoint.c.id))).scalar_one()
    return Created(public_id, await signing_secrets.add(connection, sealer, tenant_id, endpoint_id, public_id))


async def get(connection: AsyncConnection, *, sealer: Sealer, tenant_id: int, public_id: str) -> Endpoint:
    """One endpoint.

    Raises:
        NotFound: this tenant has none of this id, or it is deleted.
    """
    row = await _row(connection, tenant_id, public_id)
    return _endpoint(row, sealer, tenant_id)


async def list_page(
    connection: AsyncConnection,
    *,
    sealer: Sealer,
    tenant_id: int,
    project_id: int | None = None,
    after: str | None = None,
    limit: int = 20,
) -> tuple[list[Endpoint], bool]:
    """A page of subscriptions, newest first, and whether more follow. Endpoints of single batches are not listed.

    Raises:
        NotFound: `after` names no endpoint of this tenant.
    """
    scope = [_live(tenant_id), endpoint.c.batch_id.is_(None)]
    if project_id is not None:
        scope.append(endpoint.c.project_id == project_id)
    if after is not None:
        scope.append(endpoint.c.id < await _place(connection, tenant_id, after))
    query = (
        select(endpoint, signing_secrets.newest_hint()).where(*scope).order_by(endpoint.c.id.desc()).limit(limit + 1)
    )
    rows = (await connection.execute(query)).mappings().all()
    return [_endpoint(row, sealer, tenant_id) for row in rows[:limit]], len(rows) > limit


async def change(
    connection: AsyncConnection,
    *,
    sealer: Sealer,
    settings: Settings,
    tenant_id: int,
    public_id: str,
    url: str | None = None,
    event_types: Sequence[str] | None = None,
    name: str | None = None,
    enabled: bool | None = None,
) -> Endpoint:
    """Change what is given. It applies to deliveries that wait, too; their attempts so far stay counted.

    Raises:
        NotFound, InvalidRequest: as for `get` and `create`.
    """
    row = await _row(connection, tenant_id, public_id)
    new: dict[str, Any] = {}
    if name is not None and _name(name) != row["name"]:
        new["name"] = name
    if event_types is not None and _types(event_types) != row["event_types"]:
        new["event_types"] = _types(event_types)
    if url is not None and targets.checked(url, settings) != _url(row, sealer, tenant_id):
        new["url"] = _sealed_url(sealer, settings, tenant_id, public_id, url)
    if enabled is not None and enabled != (row["disabled_at"] is None):
        new |= {"disabled_at": None, "disabled_reason": None} if enabled else _disabling()
    if new:
        await connection.execute(
            update(endpoint).where(endpoint.c.id == row["id"], _live(tenant_id)).values(**new, updated_at=func.now())
        )
    if enabled:
        await _wake(connection)
    return await get(connection, sealer=sealer, tenant_id=tenant_id, public_id=public_id)


async def remove(connection: AsyncConnection, *, tenant_id: int, public_id: str) -> None:
    """Delete an endpoint and its secrets. The sender drops what still waits for it.

    Raises:
        NotFound: as for `get`.
    """
    row = await _row(connection, tenant_id, public_id)
    gone = {"deleted_at": func.now(), "updated_at": func.now(), "url": b""}
    await connection.execute(update(endpoint).where(endpoint.c.id == row["id"], _live(tenant_id)).values(**gone))
    await signing_secrets.remove(connection, tenant_id, row["id"])
    await _wake(connection)


async def rotate_secret(
    connection: AsyncConnection, *, sealer: Sealer, tenant_id: int, public_id: str, grace_seconds: int = 0
) -> str:
    """A new secret, shown now and never again. The old ones go on signing for `grace_seconds`, which is 0 to 604,800.

    Raises:
        NotFound: as for `get`.
        InvalidRequest: the grace is out of range.
        Conflict: `signing_secrets.MAX_SECRETS` are live already.
    """
    signing_secrets.check_grace(grace_seconds)
    row = await _row(connection, tenant_id, public_id, lock=True)
    await signing_secrets.retire(connection, tenant_id, row["id"], grace_seconds)
    await connection.execute(
        update(endpoint).where(endpoint.c.id == row["id"], _live(tenant_id)).values(updated_at=func.now())
    )
    return await signing_secrets.add(connection, sealer, tenant_id, row["id"], public_id)


async def live_secrets(connection: AsyncConnection, *, sealer: Sealer, tenant_id: int, public_id: str) -> list[str]:
    """The secrets that sign now, newest first.

    Raises:
        NotFound: as for `get`.
    """
    row = await _row(connection, tenant_id, public_id, lock=True)
    return await signing_secrets.live(connection, sealer, tenant_id, row["id"], public_id)


async def _row(connection: AsyncConnection, tenant_id: int, public_id: str, *, lock: bool = False) -> RowMapping:
    query = select(endpoint, signing_secrets.newest_hint()).where(_live(tenant_id), endpoint.c.public_id == public_id)
    if lock:
        query = query.with_for_update(of=endpoint)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFound("No such webhook endpoint.")
    return row


async def _place(connection: AsyncConnection, tenant_id: int, public_id: str) -> int:
    """The place in the list that an id stands for, a deleted one's too: clients delete what they page through."""
    query = select(endpoint.c.id).where(endpoint.c.tenant_id == tenant_id, endpoint.c.public_id == public_id)
    place: int | None = (await connection.execute(query)).scalar_one_or_none()
    if place is None:
        raise NotFound("No such webhook endpoint.")
    return place


async def _wake(connection: AsyncConnection) -> None:
    await connection.execute(text("SELECT pg_notify('slackwater', 'dispatch')"))


def _live(tenant_id: int) -> ColumnElement[bool]:
    return and_(endpoint.c.tenant_id == tenant_id, endpoint.c.deleted_at.is_(None))


def _disabling() -> dict[str, Any]:
    return {"disabled_at": func.now(), "disabled_reason": DISABLED_BY_CALLER}


def _sealed_url(sealer: Sealer, settings: Settings, tenant_id: int, public_id: str, url: str) -> bytes:
    return sealer.seal(targets.checked(url, settings).encode(), signing.url_context(tenant_id, public_id))


def _url(row: RowMapping, sealer: Sealer, tenant_id: int) -> str:
    return sealer.unseal(row["url"], signing.url_context(tenant_id, row["public_id"])).decode()


def _endpoint(row: RowMapping, sealer: Sealer, tenant_id: int) -> Endpoint:
    plain = ("id", "public_id", "name", "created_at", "updated_at", "disabled_at", "disabled_reason", "hint")
    return Endpoint(
        url=_url(row, sealer, tenant_id), event_types=tuple(row["event_types"]), **{key: row[key] for key in plain}
    )


def _name(name: str) -> str:
    if len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise InvalidRequest(
            f"The name must be printable and have at most {MAX_NAME_CHARACTERS} characters.", param="name"
        )
    return name


def _types(event_types: Sequence[str]) -> list[str]:
    """The types once each, in the order of `EVENT_TYPES`."""
    if not event_types or not set(event_types) <= set(EVENT_TYPES):
        raise InvalidRequest(
            f"event_types must name one or more of: {', '.join(EVENT_TYPES)}.",
            code="invalid_event_type",
            param="event_types",
        )
    return [known for known in EVENT_TYPES if known in event_types]
