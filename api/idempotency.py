"""Creates that a client sends again: by `Idempotency-Key`, or by the mark of a client library that got no reply.

A route asks `key_of` before it reads the body, `create_of` once it knows the body's hash, then, in the transaction that makes the object,
`slackwater.storage.idempotency.earlier` and `remember`; it answers with a `CreateReply`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import structlog
from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from slackwater.errors import InvalidRequest
from slackwater.storage import idempotency
from slackwater.storage.database import Database
from slackwater.storage.idempotency import Create, Known
from slackwater.tenancy.keys import Principal

log = structlog.get_logger()
KEY: Final = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
RESEND_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
REPLAYED: Final = {"idempotent-replayed": "true"}


def key_of(request: Request) -> str | None:
    """The `Idempotency-Key`.

    Raises:
        InvalidRequest: it is not 1 to 255 visible ASCII characters.
    """
    key = request.headers.get("idempotency-key")
    if key is not None and not KEY.fullmatch(key):
        raise InvalidRequest(
            "An Idempotency-Key has 1 to 255 visible ASCII characters.",
            code="invalid_value",
            param="idempotency-key",
        )
    return key


def create_of(request: Request, caller: Principal, route: str, digest: bytes) -> Create:
    """What this request asks to be made; `route` names the kind of object, `digest` stands for the whole body."""
    return Create(
        tenant_id=caller.tenant_id,
        api_key_id=caller.key_id,
        route=route,
        hash=digest,
        key=key_of(request),
        is_resend=RESEND_COUNT.fullmatch(request.headers.get("x-stainless-retry-count", "")) is not None,
    )


class Noted(Response):
    """The reply to a create. Once all of it was written to a client that is still there, the create counts as answered."""

    def __init__(self, reply: Response, database: Database, create: Create, known: Known, *, is_replay: bool) -> None:
        self._reply, self._database, self._create, self._known = reply, database, create, known
        self.status_code, self.raw_headers, self.background = reply.status_code, reply.raw_headers, reply.background
        if is_replay:
            self.headers.update(REPLAYED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        was_gone = await Request(scope, receive).is_disconnected()
        is_whole = False

        async def watched(message: Message) -> None:
            nonlocal is_whole
            await send(message)
            is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        await self._reply(scope, receive, watched)
        if self._create.key is None and is_whole and not was_gone:
            await self._note()

    async def _note(self) -> None:
        """Without the note a re-send within ten minutes gets this same object: the safe side."""
        try:
            await idempotency.replied(self._database, self._create.tenant_id, self._known)
        except (SQLAlchemyError, OSError) as error:
            log.warning("reply.not_noted", error=type(error).__name__)


class CreateReply(Noted):
    """The object that was made, or was before, as JSON."""

    def __init__(
        self, content: Mapping[str, Any], database: Database, create: Create, known: Known, *, is_replay: bool
    ) -> None:
        super().__init__(JSONResponse(dict(content)), database, create, known, is_replay=is_replay)
