"""Who is calling. A key is looked up at most once a second, so that a revocation takes effect within one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Final

import structlog
from fastapi import Depends, Request

from slackwater.errors import Forbidden, Unauthenticated
from slackwater.storage.database import Database
from slackwater.tenancy.key_format import digest_of, public_id_of
from slackwater.tenancy.keys import ADMIN, Principal, recognise

CACHE_SECONDS: Final = 0.9
CACHE_SIZE: Final = 4096


@dataclass
class Gate:
    """Finds the principal of a key."""

    database: Database
    clock: Callable[[], float] = time.monotonic
    _known: dict[bytes, tuple[float, Principal]] = field(default_factory=dict)

    async def principal(self, header: str | None) -> Principal:
        """Whom `Authorization: Bearer …` stands for.

        Raises:
            Unauthenticated: no key, or one that may not be used now, whatever the reason.
        """
        key = _bearer(header)
        digest = digest_of(key)
        asked_at = self.clock()
        seen_at, principal = self._known.get(digest, (-CACHE_SECONDS, None))
        if principal is not None and asked_at - seen_at < CACHE_SECONDS:
            return principal
        self._known.pop(digest, None)
        async with self.database.gate() as connection:
            found = await recognise(connection, key)
        if found is None:
            raise _refusal()
        self._keep(digest, asked_at, found)
        return found

    def _keep(self, digest: bytes, asked_at: float, principal: Principal) -> None:
        """Remember from the moment of asking, not of the answer: the answer may be old by the time it comes."""
        if len(self._known) >= CACHE_SIZE:
            self._known.clear()
        self._known[digest] = (asked_at, principal)


def _refusal() -> Unauthenticated:
    return Unauthenticated("Incorrect API key provided.")


def _bearer(header: str | None) -> str:
    scheme, _, key = (header or "").partition(" ")
    if scheme.lower() != "bearer" or public_id_of(key.strip()) is None:
        raise _refusal()
    return key.strip()


def allowed(*scopes: str) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency: the caller, whose key must have one of `scopes` (`admin` has every scope)."""

    async def check(request: Request) -> Principal:
        gate: Gate = request.app.state.gate
        principal = await gate.principal(request.headers.get("authorization"))
        structlog.contextvars.bind_contextvars(tenant=principal.tenant, key=principal.key)
        demand(principal, *scopes)
        return principal

    return check


def demand(principal: Principal, *scopes: str) -> None:
    """Go on only with a key that has one of `scopes`.

    Raises:
        Forbidden: it has none of them.
    """
    if not principal.scopes & {*scopes, ADMIN}:
        raise Forbidden(f"This key lacks the scope '{scopes[0]}'.")


FilesReader = Annotated[Principal, Depends(allowed("files:read"))]
FilesWriter = Annotated[Principal, Depends(allowed("files:write"))]
BatchesReader = Annotated[Principal, Depends(allowed("batches:read"))]
BatchesWriter = Annotated[Principal, Depends(allowed("batches:write"))]
ModelsReader = Annotated[Principal, Depends(allowed("models:read"))]
ResponsesWriter = Annotated[Principal, Depends(allowed("live:write", "batches:write"))]
LiveCaller = Annotated[Principal, Depends(allowed("live:write"))]
Admin = Annotated[Principal, Depends(allowed(ADMIN))]


def database_of(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


Store = Annotated[Database, Depends(database_of)]
