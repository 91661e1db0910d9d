"""`/v1/models` and `/v1/instances`: what this tenant may use, and what serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from api.auth import ModelsReader, Store
from slackwater.errors import NotFound
from slackwater.tenancy import instances, models
from slackwater.wire.batch import unix

router = APIRouter(prefix="/v1", tags=["models"])


def _object(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": row["name"], "object": "model", "created": unix(row["created_at"]), "owned_by": "slackwater"}


@router.get("/models")
async def listed(caller: ModelsReader, database: Store) -> dict[str, Any]:
    """The models this tenant may use."""
    async with database.tenant(caller.tenant_id) as connection:
        rows = await models.usable(connection, caller.tenant_id)
    return {"object": "list", "data": [_object(row) for row in rows]}


@router.get("/models/{model:path}")
async def retrieve(model: str, caller: ModelsReader, database: Store) -> dict[str, Any]:
    """One model, if this tenant may use it. Its name may hold slashes."""
    if "\0" not in model:
        async with database.tenant(caller.tenant_id) as connection:
            for row in await models.usable(connection, caller.tenant_id, model):
                return _object(row)
    raise NotFound("The model does not exist or you may not use it.", code="model_not_found", param="model")


@router.get("/instances")
async def serving(caller: ModelsReader, database: Store) -> dict[str, Any]:
    """The model servers that serve models of this tenant: no address and no key."""
    async with database.tenant(caller.tenant_id) as connection:
        rows = await instances.visible(connection, caller.tenant_id)
    return {"object": "list", "data": [_instance(row) for row in rows]}


def _instance(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["public_id"],
        "object": "instance",
        "name": row["name"],
        "engine": row["engine"],
        "mode": row["mode"],
        "max_slots": row["max_slots"],
        "gpus": row["gpus"],
        "models": row["models"],
        "has_worker": bool(row["has_worker"]),
        "created_at": unix(row["created_at"]),
    }
