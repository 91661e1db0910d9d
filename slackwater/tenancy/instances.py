"""Instances: running model servers, the models they serve, and the sealed key that opens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import ids
from slackwater.errors import Conflict, InvalidRequest, Misconfigured, NotFound
from slackwater.sealing import Sealer
from slackwater.storage.tables import instance, instance_model
from slackwater.tenancy import audit, models
from slackwater.tenancy.names import checked

Engine = Literal["openai_http", "local", "echo"]
Mode = Literal["strict", "balanced", "deadline"]
HIDDEN: Final = ("api_key",)


@dataclass(frozen=True, slots=True)
class NewInstance:
    """What is needed to register a model server. `models` maps our model names to the names its server knows."""

    name: str
    models: Mapping[str, str]
    engine: Engine = "openai_http"
    url: str | None = None
    api_key: str | None = None
    gpus: Sequence[str] = ()
    max_slots: int = 16
    mode: Mode = "balanced"
    options: Mapping[str, Any] = field(default_factory=dict)


def context_of(public_id: str) -> str:
    """The place an instance's key is sealed for."""
    return f"instance|{public_id}"


async def create(
    connection: AsyncConnection, new: NewInstance, sealer: Sealer | None = None, *, actor: str = "cli"
) -> dict[str, Any]:
    """Register a model server, and make those of its models that are new.

    Raises:
        InvalidRequest: the name, the URL or a model's name may not be used.
        Conflict: an instance of this name exists.
        Misconfigured: it has a key and there is no master key to seal it with.
    """
    public_id = ids.new("inst_")
    values = {
        "public_id": public_id,
        "name": checked(new.name),
        "engine": new.engine,
        "url": checked_url(new),
        "api_key": _sealed(new.api_key, public_id, sealer),
        "gpus": list(new.gpus),
        "max_slots": new.max_slots,
        "mode": new.mode,
        "options": dict(new.options),
    }
    try:
        row = (await connection.execute(insert(instance).values(values).returning(instance))).mappings().one()
    except IntegrityError:
        raise Conflict("An instance of this name exists.", code="name_taken", param="name") from None
    await _serve(connection, row["id"], new.models, actor)
    await audit.record(connection, actor, "instance.created", public_id, details={"models": sorted(new.models)})
    return await find(connection, public_id)


async def _serve(connection: AsyncConnection, instance_id: int, served: Mapping[str, str], actor: str) -> None:
    if not served:
        raise InvalidRequest("An instance serves at least one model.", code="invalid_value", param="models")
    for name, upstream_name in sorted(served.items()):
        row = await models.ensure(connection, name, actor=actor)
        values = {"instance_id": instance_id, "model_id": row["id"], "upstream_name": upstream_name}
        await connection.execute(insert(instance_model).values(values))


def checked_url(new: NewInstance) -> str | None:
    """The base URL of an upstream without a trailing slash; None for engines that run in the worker.

    Raises:
        InvalidRequest: an upstream needs an http or https URL without user name, query or fragment.
    """
    if new.engine != "openai_http":
        return None
    wrong = InvalidRequest(
        "An upstream needs an http or https URL without user name, query or fragment.",
        code="invalid_value",
        param="url",
    )
    try:
        parts = urlsplit(new.url or "")
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        raise wrong from None
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or not port_is_right:
        raise wrong
    return (new.url or "").rstrip("/")


def _sealed(api_key: str | None, public_id: str, sealer: Sealer | None) -> bytes | None:
    if not api_key:
        return None
    if sealer is None:
        raise Misconfigured("SLACKWATER_MASTER_KEY is not set: the key of an instance is stored sealed")
    return sealer.seal(api_key.encode(), context_of(public_id))


async def find(connection: AsyncConnection, reference: str) -> dict[str, Any]:
    """The instance with this public id or name, without its key.

    Raises:
        NotFound: there is none.
    """
    named = (instance.c.public_id == reference) | (instance.c.name == reference)
    row = (await connection.execute(select(instance).where(named))).mappings().first()
    if row is None:
        raise NotFound("No such instance.", param="instance")
    served = await connection.execute(MODELS, {"instances": [row["id"]]})
    shown = {name: value for name, value in row.items() if name not in HIDDEN}
    return shown | {"models": {name: upstream for _, name, upstream in served}, "has_api_key": bool(row["api_key"])}


MODELS = text("""
SELECT im.instance_id, m.name, im.upstream_name FROM instance_model im JOIN model m ON m.id = im.model_id
 WHERE im.instance_id = ANY(:instances) ORDER BY m.name
""")


async def listed(connection: AsyncConnection) -> list[dict[str, Any]]:
    """Every instance, disabled ones too, in the order they were made; for an `admin()` transaction."""
    references = await connection.scalars(select(instance.c.public_id).order_by(instance.c.id))
    return [await find(connection, reference) for reference in references.all()]


SHOWN = text("""
SELECT i.public_id, i.name, i.engine, i.mode, i.max_slots, cardinality(i.gpus) AS gpus, i.created_at, i.disabled_at,
       array_agg(m.name ORDER BY m.name) AS models,
       max(w.heartbeat_at) > now() - interval '15 s' AS has_worker
  FROM instance i
  JOIN instance_model im ON im.instance_id = i.id
  JOIN model m ON m.id = im.model_id
   AND (m.is_open OR m.id IN (SELECT model_id FROM model_access WHERE tenant_id = :tenant_id))
  LEFT JOIN worker w ON w.instance_id = i.id AND w.stopped_at IS NULL
 WHERE i.disabled_at IS NULL
 GROUP BY i.id, i.public_id, i.name, i.engine, i.mode, i.max_slots, i.gpus, i.created_at, i.disabled_at
 ORDER BY i.id
""")


async def visible(connection: AsyncConnection, tenant_id: int) -> list[dict[str, Any]]:
    """The enabled instances that serve a model the tenant may use: no URL, no key; for a `tenant()` transaction."""
    rows = (await connection.execute(SHOWN, {"tenant_id": tenant_id})).mappings()
    return [dict(row) | {"models": sorted(set(row["models"]))} for row in rows]


DECISIONS = text("""
SELECT i.public_id AS instance, d.* FROM instance i
 CROSS JOIN LATERAL (
    SELECT worker_id, at, admitted, reason, slots, prompt_tokens, details FROM decision
     WHERE instance_id = i.id ORDER BY at DESC LIMIT :each) d
 WHERE i.public_id = ANY(:instances)
 ORDER BY i.public_id, d.at DESC
""")


async def decisions(connection: AsyncConnection, references: Sequence[str], *, each: int) -> list[dict[str, Any]]:
    """The newest `each` decisions of these instances, the newest first."""
    rows = await connection.execute(DECISIONS, {"instances": list(references), "each": each})
    return [dict(row) for row in rows.mappings()]


async def disable(
    connection: AsyncConnection, reference: str, *, disabled: bool = True, actor: str = "cli"
) -> dict[str, Any]:
    """Send an instance no more work, or work again. Doing it twice changes nothing.

    Raises:
        NotFound: there is no such instance.
    """
    row = await find(connection, reference)
    since = func.coalesce(instance.c.disabled_at, func.now()) if disabled else None
    await connection.execute(update(instance).where(instance.c.id == row["id"]).values(disabled_at=since))
    action = "instance.disabled" if disabled else "instance.enabled"
    await audit.record(connection, actor, action, row["public_id"])
    return await find(connection, row["public_id"])
