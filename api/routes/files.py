"""`/v1/files` (contract: WIRE 1.1, 1.2 and 8)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from api import idempotency
from api.auth import FilesReader, FilesWriter, Store
from api.downloads import content
from api.file_form import FILE, check_early, life_asked, purpose_of
from api.receiving import Receiver, digest_of, kept, receive
from slackwater.errors import InvalidRequest, NotFound
from slackwater.storage import files
from slackwater.storage.blobs import Upload
from slackwater.storage.files import Listing
from slackwater.storage.idempotency import earlier, remember
from slackwater.wire.files import PURPOSES, deleted_file, file_object
from slackwater.wire.pages import page

router = APIRouter(prefix="/v1/files", tags=["files"])
FILE_ID: Final = re.compile(r"file-[0-9a-f]{32}", re.ASCII)
MOST: Final = 10_000


@router.post("", response_model=dict[str, Any])
async def create(request: Request, caller: FilesWriter, database: Store) -> Response:
    """Upload one file as multipart/form-data: `purpose`, optionally `expires_after[…]`, and `file`."""
    idempotency.key_of(request)
    settings = request.app.state.settings
    upload = Upload(database, caller.tenant_id, caller.project_id, settings.max_file_bytes)
    receiver = Receiver(upload, FILE, check_early)
    with request.app.state.slots.taken(caller.key_id):
        async with kept(upload):
            digest = await receive(request, receiver, settings.upload_idle_seconds)
            same = idempotency.create_of(request, caller, "files", digest_of(receiver, digest))
            purpose, life, name = purpose_of(receiver.fields), life_asked(receiver.fields), receiver.filename or ""
            async with database.tenant(caller.tenant_id) as connection:
                before = await earlier(connection, same)
                if before is None:
                    row = await upload.finish(connection, filename=name, purpose=purpose, life=life)
                    known = await remember(connection, same, row["public_id"])
            if before is not None:
                await upload.discard()
                row, known = await _found(database, caller.tenant_id, before.object_id), before
    return idempotency.CreateReply(file_object(row), database, same, known, is_replay=before is not None)


@router.get("")
async def listed(
    caller: FilesReader,
    database: Store,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = MOST,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> dict[str, Any]:
    """The tenant's files, the newest first unless `order` says otherwise."""
    if purpose is not None and purpose not in PURPOSES:
        return page([], has_more=False)
    async with database.tenant(caller.tenant_id) as connection:
        cursor = await _cursor(connection, caller.tenant_id, after)
        rows, has_more = await files.listed(connection, caller.tenant_id, Listing(limit, cursor, order, purpose))
    return page([file_object(row) for row in rows], has_more=has_more)


@router.get("/{file_id}")
async def retrieve(file_id: str, caller: FilesReader, database: Store) -> dict[str, Any]:
    """One file's object."""
    return file_object(await _found(database, caller.tenant_id, file_id))


@router.get("/{file_id}/content")
async def read(file_id: str, request: Request, caller: FilesReader, database: Store) -> Response:
    """The bytes of a file; of a batch's files what there is so far, and ranges once the batch is final."""
    row = await _found(database, caller.tenant_id, file_id)
    return await content(database, caller.tenant_id, row, request.headers)


@router.delete("/{file_id}")
async def delete(file_id: str, caller: FilesWriter, database: Store) -> dict[str, Any]:
    """Delete a file. It answers 404 from now on; batches that need its bytes go on."""
    async with database.tenant(caller.tenant_id) as connection:
        if not FILE_ID.fullmatch(file_id) or not await files.delete(connection, caller.tenant_id, file_id):
            raise _missing()
    return deleted_file(file_id)


def _missing() -> NotFound:
    return NotFound("No such File object.", param="id")


async def _found(database: Store, tenant_id: int, file_id: str) -> dict[str, Any]:
    if not FILE_ID.fullmatch(file_id):
        raise _missing()
    async with database.tenant(tenant_id) as connection:
        row = await files.find(connection, tenant_id, file_id)
    if row is None:
        raise _missing()
    return dict(row)


async def _cursor(connection: AsyncConnection, tenant_id: int, after: str | None) -> int | None:
    if after is None:
        return None
    cursor = await files.cursor_of(connection, tenant_id, after) if FILE_ID.fullmatch(after) else None
    if cursor is None:
        raise InvalidRequest("There is no such cursor.", code="invalid_value", param="after")
    return cursor
