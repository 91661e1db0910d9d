"""`POST /v1/files`: from the socket into chunks, holding about one chunk in memory."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request

from api.bodies import pieces, refuse_encoding
from api.multipart import Form, PartBegin, PartData, PartEnd, boundary_of, malformed
from slackwater.errors import InvalidRequest, RequestTimeout
from slackwater.settings import Settings
from slackwater.storage.blobs import Purged, Upload, too_large
from slackwater.wire.files import (
    LONGEST_LIFE_SECONDS,
    SHORTEST_LIFE_SECONDS,
    UPLOAD_PURPOSES,
    display_name,
    life_of,
)

FILE: Final = "file"
FORM_OVERHEAD_BYTES: Final = 64 << 10
LONGEST_VALUE: Final = 1024
MOST_DIGITS: Final = 18
PURPOSE: Final = "purpose"
ANCHOR: Final = "expires_after[anchor]"
SECONDS: Final = "expires_after[seconds]"
DIGITS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass
class Receiver:
    """Sorts the events of a form: the file goes to `upload`, the other fields into `fields`."""

    upload: Upload
    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    _part: str = ""
    _value: bytes = b""

    async def take(self, event: PartBegin | PartData | PartEnd) -> None:
        match event:
            case PartBegin(name=name, filename=filename):
                await self._begin(name, filename)
            case PartData(data=data) if self._part == FILE:
                await self.upload.write(data)
            case PartData(data=data):
                self._append(data)
            case PartEnd() if self._part != FILE:
                self._end_of_field()

    async def _begin(self, name: str, filename: str | None) -> None:
        self._part, self._value = name, b""
        if name != FILE:
            return
        if self.filename is not None:
            raise InvalidRequest("One file is expected, not several.", code="invalid_multipart", param=FILE)
        self.filename = display_name(filename or "")
        if PURPOSE in self.fields:
            purpose_of(self.fields)
        await self.upload.open()

    def _append(self, data: bytes) -> None:
        self._value += data
        if len(self._value) > LONGEST_VALUE:
            raise malformed()

    def _end_of_field(self) -> None:
        try:
            self.fields[self._part] = self._value.decode()
        except UnicodeDecodeError:
            raise malformed() from None


def purpose_of(fields: dict[str, str]) -> str:
    """The purpose an upload names.

    Raises:
        InvalidRequest: it names none, or one that is not for uploads.
    """
    if PURPOSE not in fields:
        raise InvalidRequest("Missing required parameter: 'purpose'.", code="missing_required_parameter", param=PURPOSE)
    if fields[PURPOSE] not in UPLOAD_PURPOSES:
        supported = ", ".join(f"'{purpose}'" for purpose in UPLOAD_PURPOSES)
        raise InvalidRequest(f"Invalid value. Supported values are: {supported}.", code="invalid_value", param=PURPOSE)
    return fields[PURPOSE]


def expiry_of(fields: dict[str, str]) -> int | None:
    """`expires_after[seconds]`, where the upload has it.

    Raises:
        InvalidRequest: the anchor is not `created_at`, or the seconds are no number from one hour to thirty days.
    """
    if ANCHOR not in fields and SECONDS not in fields:
        return None
    if fields.get(ANCHOR) != "created_at":
        raise InvalidRequest(
            "Invalid value. Supported values are: 'created_at'.",
            code="invalid_value",
            param="expires_after.anchor",
        )
    text = fields.get(SECONDS, "")
    if not DIGITS.fullmatch(text) or not SHORTEST_LIFE_SECONDS <= int(text) <= LONGEST_LIFE_SECONDS:
        raise InvalidRequest(
            f"A number of seconds from {SHORTEST_LIFE_SECONDS} to {LONGEST_LIFE_SECONDS} is expected.",
            code="invalid_value",
            param="expires_after.seconds",
        )
    return int(text)


async def receive(request: Request, upload: Upload, settings: Settings) -> dict[str, Any]:
    """Store the file of a form; returns the columns of its object. What was stored is deleted if anything goes wrong.

    Raises:
        TooLarge: the body is declared or found to be over the limit.
        InvalidRequest: the form is malformed, has no file, or a field is wrong.
        RequestTimeout: the client is too slow.
    """
    refuse_encoding(request)
    _refuse_declared_size(request, settings.max_file_bytes)
    form = Form(boundary_of(request.headers.get("content-type", "")))
    receiver = Receiver(upload)
    try:
        total = 0
        async for piece in pieces(request, settings.upload_idle_seconds):
            total += len(piece)
            if total > settings.max_file_bytes + FORM_OVERHEAD_BYTES:
                raise too_large(settings.max_file_bytes)
            for event in form.feed(piece):
                await receiver.take(event)
        form.close()
        return await _complete(receiver)
    except Purged:
        raise RequestTimeout("The upload stood still for too long.") from None
    except BaseException:
        await asyncio.shield(upload.discard())
        raise


async def _complete(receiver: Receiver) -> dict[str, Any]:
    if receiver.filename is None:
        raise InvalidRequest("Missing required parameter: 'file'.", code="missing_required_parameter", param=FILE)
    purpose = purpose_of(receiver.fields)
    life = life_of(purpose, expiry_of(receiver.fields))
    return await receiver.upload.complete(filename=receiver.filename, purpose=purpose, life=life)


def _refuse_declared_size(request: Request, most_bytes: int) -> None:
    declared = request.headers.get("content-length", "")
    if len(declared) > MOST_DIGITS or (declared.isdecimal() and int(declared) > most_bytes + FORM_OVERHEAD_BYTES):
        raise too_large(most_bytes)
