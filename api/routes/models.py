"""`/v1/models`: what this tenant may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from api.auth import ModelsReader, Store
from slackwater.errors import NotFound
from slackwater.tenancy import models
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
