"""`/v1/uploads`: files that come in parts (contract: WIRE 1.3)."""

from __future__ import annotations

import re
from typing import Any, Final

from fastapi import APIRouter, Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from api import idempotency
from api.assembly import complete as completed
from api.auth import FilesWriter, Store
from api.bodies import checked, read_json
from api.receiving import Receiver, digest_of, kept, receive
from slackwater.errors import Conflict, NotFound
from slackwater.storage import uploads
from slackwater.storage.blobs import Upload, too_large
from slackwater.storage.idempotency import Known, earlier, hash_of, remember
from slackwater.storage.uploads import Row
from slackwater.tenancy.keys import Principal
from slackwater.wire.files import display_name
from slackwater.wire.uploads import (
    CompleteUpload,
    CreateUpload,
    UploadState,
    part_object,
    state_of,
    upload_object,
)

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])
UPLOAD_ID: Final = re.compile(r"upload_[0-9a-f]{32}", re.ASCII)
DATA: Final = "data"
ADD: Final = "add a part to"


@router.post("", response_model=dict[str, Any])
async def create(request: Request, caller: FilesWriter, database: Store) -> Response:
    """Announce a file of so many bytes; its parts may come, in any order and in parallel, within an hour."""
    idempotency.key_of(request)
    value = await read_json(request)
    asked = checked(value, CreateUpload)
    most = request.app.state.settings.max_file_bytes
    if asked.bytes > most:
        raise too_large(most)
    same = idempotency.create_of(request, caller, "uploads", hash_of(value))
    async with database.tenant(caller.tenant_id) as connection:
        before = await earlier(connection, same)
        row = await (_started(connection, caller, asked) if before is None else _again(connection, caller, before))
        known = before or await remember(connection, same, row["public_id"])
    return idempotency.CreateReply(upload_object(row), database, same, known, is_replay=before is not None)


@router.post("/{upload_id}/parts", response_model=dict[str, Any])
async def add_part(upload_id: str, request: Request, caller: FilesWriter, database: Store) -> Response:
    """Store one part, sent as multipart/form-data in the field `data`."""
    idempotency.key_of(request)
    settings = request.app.state.settings
    with request.app.state.slots.taken(caller.key_id):
        row = await _found(database, caller.tenant_id, upload_id)
        uploads.refuse_ended(row, ADD)
        async with database.tenant(caller.tenant_id) as connection:
            await uploads.refuse_full(connection, caller.tenant_id, row)
        most = min(settings.max_part_bytes, row["bytes"])
        receiver = Receiver(Upload(database, caller.tenant_id, caller.project_id, most), DATA)
        async with kept(receiver.upload):
            digest = await receive(request, receiver, settings.upload_idle_seconds)
            same = idempotency.create_of(request, caller, "parts", digest_of(receiver, digest, upload=upload_id))
            async with database.tenant(caller.tenant_id) as connection:
                before = await earlier(connection, same)
                made = await _part(connection, caller, row, receiver.upload, before)
                known = before or await remember(connection, same, made["public_id"])
            if before is not None:
                await receiver.upload.discard()
    return idempotency.CreateReply(part_object(made, upload_id), database, same, known, is_replay=before is not None)


@router.post("/{upload_id}/complete")
async def complete(upload_id: str, request: Request, caller: FilesWriter, database: Store) -> dict[str, Any]:
    """Make a file of the parts that `part_ids` names, in that order."""
    asked = checked(await read_json(request), CompleteUpload)
    with request.app.state.slots.taken(caller.key_id):
        row = await _found(database, caller.tenant_id, upload_id)
        return await completed(database, caller.tenant_id, row, asked)


@router.post("/{upload_id}/cancel")
async def cancel(upload_id: str, caller: FilesWriter, database: Store) -> dict[str, Any]:
    """Give an upload up: its parts are deleted. A body is not read; asking again is the same."""
    row = await _found(database, caller.tenant_id, upload_id)
    if state_of(row) is UploadState.PENDING:
        async with database.tenant(caller.tenant_id) as connection:
            await uploads.end(connection, caller.tenant_id, row["id"], UploadState.CANCELLED)
        row = await _found(database, caller.tenant_id, upload_id)
    if state_of(row) is not UploadState.CANCELLED:
        uploads.refuse_ended(row, "cancel")
    await uploads.drop_parts(database, caller.tenant_id, row["id"])
    return upload_object(row)


async def _started(connection: AsyncConnection, caller: Principal, asked: CreateUpload) -> Row:
    return await uploads.create(
        connection,
        caller.tenant_id,
        caller.project_id,
        filename=display_name(asked.filename),
        purpose=asked.purpose,
        bytes=asked.bytes,
        life_seconds=None if asked.expires_after is None else asked.expires_after.seconds,
    )


async def _again(connection: AsyncConnection, caller: Principal, before: Known) -> Row:
    row = await uploads.find(connection, caller.tenant_id, before.object_id)
    if row is None:
        raise _missing()
    return row


async def _part(connection: AsyncConnection, caller: Principal, row: Row, part: Upload, before: Known | None) -> Row:
    if before is not None:
        made = await uploads.part_of(connection, caller.tenant_id, row["id"], before.object_id)
    else:
        assert part.file_id is not None
        made = await uploads.add_part(connection, caller.tenant_id, row["id"], part.file_id, part.size)
    if made is None:
        raise await _ended_meanwhile(connection, caller, row)
    return made


async def _ended_meanwhile(connection: AsyncConnection, caller: Principal, row: Row) -> Conflict:
    """Why a pending upload takes no part any more: how it ended while the part came."""
    now = await uploads.find(connection, caller.tenant_id, row["public_id"])
    if now is not None:
        uploads.refuse_ended(now, ADD)
    return uploads.gone()


def _missing() -> NotFound:
    return NotFound("No such Upload object.", param="upload_id")


async def _found(database: Store, tenant_id: int, upload_id: str) -> Row:
    row = None
    if UPLOAD_ID.fullmatch(upload_id):
        async with database.tenant(tenant_id) as connection:
            row = await uploads.find(connection, tenant_id, upload_id)
    if row is None:
        raise _missing()
    return row
