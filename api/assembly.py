"""Completing an upload: its parts become one file, copied through memory a chunk at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from api.receiving import kept
from slackwater.errors import Gone, InvalidRequest
from slackwater.storage import uploads
from slackwater.storage.blobs import Upload
from slackwater.storage.database import Database
from slackwater.storage.uploads import Part, Row
from slackwater.wire.files import file_object, life_of
from slackwater.wire.uploads import CompleteUpload, UploadState, state_of, upload_object


class Outrun(Exception):
    """Somebody else ended the upload first."""


async def complete(database: Database, tenant_id: int, row: Row, asked: CompleteUpload) -> dict[str, Any]:
    """Put the parts together in the order asked for; returns the upload with its file. Asking again the same way is no fault.

    Raises:
        Conflict: the upload was cancelled, has expired, or was completed otherwise.
        InvalidRequest: parts, size or md5 do not fit.
    """
    if state_of(row) is UploadState.COMPLETED:
        return await _again(database, tenant_id, row, asked)
    uploads.refuse_ended(row, "complete")
    try:
        shown = await _assembled(database, tenant_id, row, asked)
    except (Outrun, Gone, InvalidRequest):  # The parts of an upload that somebody else has ended are going.
        told = await _ended_meanwhile(database, tenant_id, row, asked)
        if told is None:
            raise
        return told
    await uploads.drop_parts(database, tenant_id, row["id"])
    return shown


async def _assembled(database: Database, tenant_id: int, row: Row, asked: CompleteUpload) -> dict[str, Any]:
    """The completed upload.

    Raises:
        InvalidRequest: parts, size or md5 do not fit.
        Outrun: somebody else ended it while the bytes were copied.
        Gone: so too: a part is gone.
    """
    async with database.tenant(tenant_id) as connection:
        stored = await uploads.parts(connection, tenant_id, row["id"])
    chosen = uploads.in_order(stored, asked.part_ids, row["bytes"])
    file = Upload(database, tenant_id, row["project_id"], row["bytes"])
    async with kept(file):
        await file.open()
        await _copy(database, tenant_id, chosen, file, asked.md5)
        life = life_of(row["purpose"], row["life_seconds"])
        parts_hash = uploads.hash_of(asked.part_ids)
        async with database.tenant(tenant_id) as connection:
            ended = await uploads.end(
                connection, tenant_id, row["id"], UploadState.COMPLETED, file_id=file.file_id, parts_hash=parts_hash
            )
            if ended is None:
                raise Outrun
            return await _shown(connection, file, ended, life)


async def _shown(connection: AsyncConnection, file: Upload, ended: Row, life: timedelta | None) -> dict[str, Any]:
    made = await file.finish(connection, filename=ended["filename"], purpose=ended["purpose"], life=life)
    return upload_object(ended, file_object(made))


async def _copy(database: Database, tenant_id: int, chosen: Sequence[Part], file: Upload, md5: str | None) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    async for piece in uploads.content(database, tenant_id, chosen):
        digest.update(piece)
        await file.write(piece)
    await file.flush()
    if md5 is not None and digest.hexdigest() != md5:
        raise InvalidRequest("The md5 of the parts is another one.", code="md5_mismatch", param="md5")


async def _ended_meanwhile(
    database: Database, tenant_id: int, row: Row, asked: CompleteUpload
) -> dict[str, Any] | None:
    """What is told of an upload that somebody else has ended, as if it had been so from the first; None while it is pending.

    Raises:
        Conflict: it was cancelled, has expired, or was completed otherwise.
    """
    async with database.tenant(tenant_id) as connection:
        now = await uploads.find(connection, tenant_id, row["public_id"])
    if now is None:
        raise uploads.gone()
    if state_of(now) is UploadState.COMPLETED:
        return await _again(database, tenant_id, now, asked)
    uploads.refuse_ended(now, "complete")
    return None


async def _again(database: Database, tenant_id: int, row: Row, asked: CompleteUpload) -> dict[str, Any]:
    if row["parts_hash"] != uploads.hash_of(asked.part_ids):
        uploads.refuse_ended(row, "complete")
    async with database.tenant(tenant_id) as connection:
        file = await uploads.file_of(connection, tenant_id, row["file_id"])
    return upload_object(row, None if file is None else file_object(file))
