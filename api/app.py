"""The application: its parts, and how long they live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api import errors
from api.auth import Gate
from api.gateway.directory import Directory
from api.gateway.figures import Figures
from api.gateway.passing import Passing
from api.live import Presence
from api.routes import (
    admin,
    batch_events,
    batch_lines,
    batch_retries,
    batch_validation,
    batches,
    files,
    health,
    instances,
    live,
    models,
    responses,
    uploads,
    webhook_endpoints,
)
from api.scope import RequestScope
from api.slots import Slots
from slackwater.settings import Settings
from slackwater.storage.database import Database
from slackwater.storage.migrate import newest


def create_app(settings: Settings) -> FastAPI:
    """The API of one process. Its pool opens with the first request; it is a registered gateway while it runs.

    Presence has a connection of its own: a busy pool must not make live traffic look lost.
    """
    app = FastAPI(
        title="Slackwater",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    database = Database(settings.dsn)
    app.state.settings = settings
    app.state.database = database
    app.state.gate = Gate(database)
    figures = Figures()
    app.state.directory = Directory(database, settings)
    app.state.passing = Passing(figures, settings.request_timeout_seconds)
    app.state.presence = Presence(Database(settings.dsn, pool_size=1), figures.loads)
    figures.changed = app.state.presence.changed
    app.state.slots = Slots(settings.max_uploads_per_key)
    app.state.revision = newest()
    app.state.stopping = asyncio.Event()
    errors.install(app)
    app.add_middleware(RequestScope)
    for routes in (
        health,
        files,
        uploads,
        batches,
        batch_lines,
        batch_events,
        batch_retries,
        batch_validation,
        models,
        instances,
        live,
        responses,
        webhook_endpoints,
        admin,
    ):
        app.include_router(routes.router)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    presence: Presence = app.state.presence
    database: Database = app.state.database
    try:
        async with presence.kept():
            yield
    finally:
        await app.state.passing.close()
        await presence.database.close()
        await database.close()
