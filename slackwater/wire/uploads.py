"""Uploads in parts (contract: WIRE 1.3): what a client asks for, and the objects it gets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from slackwater.wire.batch import unix
from slackwater.wire.batch_request import Body, Clean, ExpiresAfter

MOST_PARTS: Final = 10_000
MD5: Final = re.compile(r"[0-9a-fA-F]{32}", re.ASCII)
Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


class UploadState(StrEnum):
    """Where an upload is in its life, in OpenAI's words."""

    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


STORED: Final = (UploadState.PENDING, UploadState.COMPLETED, UploadState.CANCELLED)


def state_of(row: Mapping[str, Any]) -> UploadState:
    """The state of a row of `upload`: one that is still pending at its end has expired."""
    state = STORED[row["state"]]
    return UploadState.EXPIRED if state is UploadState.PENDING and row["is_over"] else state


def _md5(text: str) -> str:
    if not MD5.fullmatch(text):
        raise PydanticCustomError("invalid_md5", "32 hexadecimal digits are expected.")
    return text.lower()


PartId = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class CreateUpload(Body):
    """The body of `POST /v1/uploads`. The media type is required, as OpenAI requires it, and not kept."""

    filename: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    purpose: Purpose
    bytes: int = Field(ge=0)
    mime_type: Annotated[Clean, StringConstraints(max_length=256)]
    expires_after: ExpiresAfter | None = None


class CompleteUpload(Body):
    """The body of `POST /v1/uploads/{upload_id}/complete`."""

    part_ids: Annotated[list[PartId], Field(max_length=MOST_PARTS)]
    md5: Annotated[str, AfterValidator(_md5)] | None = None


def upload_object(row: Mapping[str, Any], file: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The OpenAI upload object of one row of `upload`; `file` is the file's object once there is one."""
    return {
        "id": row["public_id"],
        "object": "upload",
        "bytes": row["bytes"],
        "created_at": unix(row["created_at"]),
        "expires_at": unix(row["expires_at"]),
        "filename": row["filename"],
        "purpose": row["purpose"],
        "status": state_of(row).value,
        "file": None if file is None else dict(file),
    }


def part_object(row: Mapping[str, Any], upload_id: str) -> dict[str, Any]:
    """The OpenAI upload part object."""
    return {
        "id": row["public_id"],
        "object": "upload.part",
        "created_at": unix(row["created_at"]),
        "upload_id": upload_id,
    }
