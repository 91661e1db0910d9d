"""Is this process alive, is it of use, and what has it counted."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, Response

from api.auth import Store, allowed
from slackwater.telemetry import REGISTRY
from slackwater.tenancy.keys import ADMIN

router = APIRouter(tags=["health"])
READY_SECONDS: Final = 2.0
ADMIN_ONLY = allowed(ADMIN)
REVISION = text("SELECT version_num FROM alembic_version")


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def ready(request: Request, database: Store) -> JSONResponse:
    """The database answers and has the schema this code was written for."""
    try:
        async with asyncio.timeout(READY_SECONDS), database.engine.connect() as connection:
            revision = (await connection.execute(REVISION)).scalar_one_or_none()
    except (SQLAlchemyError, TimeoutError):
        return _not_ready("database_unavailable")
    if revision != request.app.state.revision:
        return _not_ready("not_migrated")
    return JSONResponse({"status": "ok"})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Figures in the Prometheus text format, which name no tenant and no id; from another host they need an `admin` key."""
    if not _is_local(request):
        await ADMIN_ONLY(request)
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


def _is_local(request: Request) -> bool:
    """The caller is on this host, and no proxy speaks for somebody else."""
    forwarded = {"forwarded", "x-forwarded-for", "x-real-ip"} & set(request.headers.keys())
    return request.client is not None and request.client.host in ("127.0.0.1", "::1") and not forwarded


def _not_ready(reason: str) -> JSONResponse:
    return JSONResponse({"status": "unavailable", "reason": reason}, 503, {"retry-after": "2"})
