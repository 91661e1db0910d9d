"""`/v1/instances`: the model servers that serve a tenant's models, and what their workers decided and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy.ext.asyncio import AsyncConnection

from api.auth import ModelsReader, Store
from slackwater.errors import NotFound
from slackwater.explain import SENTENCES, Reason
from slackwater.tenancy import instances
from slackwater.wire.batch import unix

router = APIRouter(prefix="/v1/instances", tags=["instances"])


@router.get("")
async def listed(caller: ModelsReader, database: Store) -> dict[str, Any]:
    """The instances that serve models of this tenant, each with its newest decision: no address and no key."""
    async with database.tenant(caller.tenant_id) as connection:
        rows = await instances.visible(connection, caller.tenant_id)
        newest = await instances.decisions(connection, [row["public_id"] for row in rows], each=1)
    last = {row["instance"]: row for row in newest}
    return {"object": "list", "data": [_instance(row, last.get(row["public_id"])) for row in rows]}


@router.get("/{instance_id}")
async def retrieve(instance_id: str, caller: ModelsReader, database: Store) -> dict[str, Any]:
    """One of them."""
    async with database.tenant(caller.tenant_id) as connection:
        row = await _visible(connection, caller.tenant_id, instance_id)
        newest = await instances.decisions(connection, [instance_id], each=1)
    return _instance(row, newest[0] if newest else None)


@router.get("/{instance_id}/decisions")
async def decided(
    instance_id: str, caller: ModelsReader, database: Store, limit: Annotated[int, Query(ge=1, le=1000)] = 60
) -> dict[str, Any]:
    """What its workers decided, the newest first; an hour is kept."""
    async with database.tenant(caller.tenant_id) as connection:
        await _visible(connection, caller.tenant_id, instance_id)
        rows = await instances.decisions(connection, [instance_id], each=limit)
    return {"object": "list", "data": [_decision(row) for row in rows]}


async def _visible(connection: AsyncConnection, tenant_id: int, instance_id: str) -> dict[str, Any]:
    for row in await instances.visible(connection, tenant_id):
        if row["public_id"] == instance_id:
            return row
    raise NotFound("No instance found with that id.")


def _instance(row: Mapping[str, Any], decision: Mapping[str, Any] | None) -> dict[str, Any]:
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
        "decision": None if decision is None else _decision(decision),
    }


def _decision(row: Mapping[str, Any]) -> dict[str, Any]:
    """`reason` is null where work was admitted."""
    said = (row["details"] or {}).get("message") or (SENTENCES[Reason(row["reason"])] if row["reason"] else None)
    return {
        "object": "decision",
        "at": row["at"].timestamp(),
        "worker": row["worker_id"],
        "admitted": row["admitted"],
        "reason": row["reason"],
        "message": said,
        "slots": row["slots"],
        "prompt_tokens": row["prompt_tokens"],
    }
