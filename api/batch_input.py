"""The body of a request that brings a batch's input: a file's id, or `requests` in line, which are stored as a file while they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection

from api.bodies import expect_json, pieces, too_large
from slackwater.errors import InvalidRequest, RequestTimeout
from slackwater.reader import strict_json
from slackwater.reader.inline import InlineSplitter
from slackwater.settings import Settings
from slackwater.storage.blobs import Purged, Upload
from slackwater.storage.database import Database
from slackwater.storage.idempotency import hash_of
from slackwater.tenancy.keys import Principal
from slackwater.wire.batch_request import BatchInput
from slackwater.wire.files import life_of

MOST_DIGITS: Final = 18
FILENAME: Final = "requests.jsonl"


@dataclass
class Incoming:
    """A body that has arrived: its value, in which every request in line is a 0, and the upload that holds those."""

    value: Any
    upload: Upload
    digest: bytes = b""

    @property
    def is_inline(self) -> bool:
        return self.upload.file_id is not None

    async def keep(self, connection: AsyncConnection) -> str:
        """Make the stored requests a file of the tenant's, with the caller's transaction; returns its public id."""
        try:
            row = await self.upload.finish(connection, filename=FILENAME, purpose="batch", life=life_of("batch", None))
        except Purged:
            raise RequestTimeout("The request stood still for too long.") from None
        return str(row["public_id"])

    async def close(self) -> None:
        """Delete what was stored and not kept."""
        await asyncio.shield(self.upload.discard())


@asynccontextmanager
async def incoming(request: Request, database: Database, caller: Principal) -> AsyncIterator[Incoming]:
    """The body, read in pieces; what was stored of it is gone after the block unless it was kept.

    Raises:
        UnsupportedMedia: it is compressed, or another content type is declared.
        TooLarge: it is over a limit.
        InvalidJson: it is not JSON in UTF-8.
        RequestTimeout: the client is too slow.
    """
    settings: Settings = request.app.state.settings
    upload = Upload(database, caller.tenant_id, caller.project_id, settings.max_inline_bytes)
    arrived = Incoming(None, upload)
    try:
        arrived.value = await _read(request, upload, settings)
        arrived.digest = hash_of([arrived.value, (await upload.flush()).hex()] if arrived.is_inline else arrived.value)
        yield arrived
    except Purged:
        raise RequestTimeout("The request stood still for too long.") from None
    finally:
        await arrived.close()


async def _read(request: Request, upload: Upload, settings: Settings) -> Any:
    expect_json(request)
    declared = request.headers.get("content-length", "0")
    if len(declared) > MOST_DIGITS or int(declared) > settings.max_inline_bytes:
        raise too_large(settings.max_inline_bytes)
    splitter, total = InlineSplitter(), 0
    async for piece in pieces(request, settings.upload_idle_seconds):
        total += len(piece)
        if total > settings.max_inline_bytes:
            raise too_large(settings.max_inline_bytes)
        lines = splitter.feed(piece)
        if len(splitter.rest) > settings.max_body_bytes:
            raise too_large(settings.max_body_bytes)
        if lines:
            await _write(upload, lines)
    return strict_json.parse(bytes(splitter.rest))


async def _write(upload: Upload, lines: bytes) -> None:
    if upload.file_id is None:
        await upload.open()
    await upload.write(lines)


def one_input(asked: BatchInput) -> None:
    """Exactly one of the two ways to bring requests.

    Raises:
        InvalidRequest: there is none, or there are both.
    """
    if not asked.input_file_id and asked.requests is None:
        message = "Missing required parameter: 'input_file_id'."
        raise InvalidRequest(message, code="missing_required_parameter", param="input_file_id")
    if asked.input_file_id and asked.requests is not None:
        message = "Send 'input_file_id' or 'requests', not both."
        raise InvalidRequest(message, code="invalid_value", param="requests")
