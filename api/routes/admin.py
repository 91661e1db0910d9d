"""`/v1/admin/…`: tenants, projects, keys, models, prices and instances, for keys with the scope `admin`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request

from api.auth import Admin, Store
from api.bodies import checked, read_json
from api.routes import admin_bodies as bodies
from slackwater.pricing import Price, dollars
from slackwater.sealing import sealer_from
from slackwater.tenancy import instances, keys, models, tenants
from slackwater.tenancy.keys import Principal
from slackwater.wire.batch import unix

router = APIRouter(prefix="/v1/admin", tags=["admin"])
PER_MILLION = 1_000_000


def _actor(caller: Principal) -> str:
    return f"key:{caller.key}"


def _shown(kind: str, row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The named columns of a row; instants as unix seconds."""
    values = {name: row[name] for name in names}
    instants = {name: unix(value) for name, value in values.items() if isinstance(value, datetime)}
    head = {"id": row["public_id"]} if "public_id" in row else {}
    return {**head, "object": kind, **values, **instants}


def _list(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": list(items)}


def _tenant(row: Mapping[str, Any]) -> dict[str, Any]:
    return _shown("tenant", row, "name", "weight", "created_at", "suspended_at")


def _project(row: Mapping[str, Any]) -> dict[str, Any]:
    return _shown("project", row, "name", "created_at")


def _key(row: Mapping[str, Any]) -> dict[str, Any]:
    stamps = ("created_at", "not_before", "expires_at", "revoked_at", "last_used_at")
    return _shown("api_key", row, "name", "last4", "scopes", *stamps)


def _model(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": row["name"], **_shown("model", row, "is_open", "created_at")}


def _price(row: Mapping[str, Any], model: str) -> dict[str, Any]:
    kinds = ("input", "cached", "output")
    per_million = {f"{kind}_per_million": dollars(row[f"{kind}_picodollars"] * PER_MILLION) for kind in kinds}
    return {"object": "price", "model": model, **per_million, "valid_from": unix(row["valid_from"])}


def _instance(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "engine", "url", "models", "gpus", "max_slots", "mode", "options", "has_api_key")
    return _shown("instance", row, *names, "created_at", "disabled_at")


@router.post("/tenants")
async def create_tenant(request: Request, caller: Admin, database: Store) -> dict[str, Any]:
    """A tenant with a project named `default`."""
    asked = checked(await read_json(request), bodies.CreateTenant)
    async with database.admin() as connection:
        return _tenant(await tenants.create(connection, asked.name, weight=asked.weight, actor=_actor(caller)))


@router.get("/tenants")
async def list_tenants(caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        return _list([_tenant(row) for row in await tenants.listed(connection)])


@router.post("/tenants/{tenant}/suspend")
async def suspend_tenant(tenant: bodies.Reference, caller: Admin, database: Store) -> dict[str, Any]:
    """Refuse all keys of a tenant from now on."""
    async with database.admin() as connection:
        return _tenant(await tenants.suspend(connection, tenant, actor=_actor(caller)))


@router.post("/tenants/{tenant}/resume")
async def resume_tenant(tenant: bodies.Reference, caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        return _tenant(await tenants.suspend(connection, tenant, suspended=False, actor=_actor(caller)))


@router.post("/tenants/{tenant}/projects")
async def create_project(tenant: bodies.Reference, request: Request, caller: Admin, database: Store) -> dict[str, Any]:
    asked = checked(await read_json(request), bodies.CreateProject)
    async with database.admin() as connection:
        owner = await tenants.find(connection, tenant)
        return _project(await tenants.create_project(connection, owner, asked.name, actor=_actor(caller)))


@router.get("/tenants/{tenant}/projects")
async def list_projects(tenant: bodies.Reference, caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        owner = await tenants.find(connection, tenant)
        return _list([_project(row) for row in await tenants.projects(connection, owner["id"])])


@router.post("/tenants/{tenant}/keys")
async def create_key(tenant: bodies.Reference, request: Request, caller: Admin, database: Store) -> dict[str, Any]:
    """A key; its text is in this reply and nowhere else."""
    asked = checked(await read_json(request), bodies.CreateKey)
    async with database.admin() as connection:
        made = await keys.create(
            connection,
            tenant,
            project_reference=asked.project,
            name=asked.name,
            scopes=asked.scopes,
            not_before=bodies.instant(asked.not_before),
            expires_at=bodies.instant(asked.expires_at),
            actor=_actor(caller),
        )
    return _key(made.row) | {"key": made.text}


@router.get("/tenants/{tenant}/keys")
async def list_keys(tenant: bodies.Reference, caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        owner = await tenants.find(connection, tenant)
        return _list([_key(row) for row in await keys.listed(connection, owner["id"])])


@router.post("/keys/{key}/revoke")
async def revoke_key(key: bodies.Reference, caller: Admin, database: Store) -> dict[str, Any]:
    """Refuse a key for good; every process does within a second."""
    async with database.admin() as connection:
        return _key(await keys.revoke(connection, key, actor=_actor(caller)))


@router.post("/models")
async def ensure_model(request: Request, caller: Admin, database: Store) -> dict[str, Any]:
    """A model, made when it is new; `is_open` says whether every tenant may use it."""
    asked = checked(await read_json(request), bodies.EnsureModel)
    async with database.admin() as connection:
        row = await models.ensure(connection, asked.name, is_open=asked.is_open, actor=_actor(caller))
    return _model(row)


@router.get("/models")
async def list_models(caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        return _list([_model(row) for row in await models.listed(connection)])


@router.post("/model_access")
async def allow_model(request: Request, caller: Admin, database: Store) -> dict[str, Any]:
    """Let a tenant use a model that is not open, or, with `allowed: false`, no longer."""
    asked = checked(await read_json(request), bodies.ModelAccess)
    async with database.admin() as connection:
        await models.allow(connection, asked.model, asked.tenant, allowed=asked.allowed, actor=_actor(caller))
    return {"object": "model_access", "model": asked.model, "tenant": asked.tenant, "allowed": asked.allowed}


@router.post("/prices")
async def set_price(request: Request, caller: Admin, database: Store) -> dict[str, Any]:
    """Dollars a million tokens, as decimal text, for batches created from now on."""
    asked = checked(await read_json(request), bodies.SetPrice)
    new = Price.per_million(asked.input, asked.output, asked.cached)
    async with database.admin() as connection:
        return _price(await models.set_price(connection, asked.model, new, actor=_actor(caller)), asked.model)


@router.get("/prices")
async def list_prices(caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        return _list([_price(row, row["model"]) for row in await models.prices(connection)])


@router.post("/instances")
async def create_instance(request: Request, caller: Admin, database: Store) -> dict[str, Any]:
    """Register a model server. Its key is stored sealed and never shown."""
    asked = checked(await read_json(request), bodies.CreateInstance)
    sealer = sealer_from(request.app.state.settings) if asked.api_key else None
    async with database.admin() as connection:
        return _instance(await instances.create(connection, asked.new(), sealer, actor=_actor(caller)))


@router.get("/instances")
async def list_instances(caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        return _list([_instance(row) for row in await instances.listed(connection)])


@router.post("/instances/{instance}/disable")
async def disable_instance(instance: bodies.Reference, caller: Admin, database: Store) -> dict[str, Any]:
    """Send an instance no more work."""
    async with database.admin() as connection:
        return _instance(await instances.disable(connection, instance, actor=_actor(caller)))


@router.post("/instances/{instance}/enable")
async def enable_instance(instance: bodies.Reference, caller: Admin, database: Store) -> dict[str, Any]:
    async with database.admin() as connection:
        return _instance(await instances.disable(connection, instance, disabled=False, actor=_actor(caller)))
