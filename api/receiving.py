"""The one file of a form, from the socket into chunks, holding about one chunk in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from fastapi import Request

from api.bodies import pieces, refuse_encoding
from api.multipart import Form, PartBegin, PartData, PartEnd, boundary_of, malformed
from slackwater.errors import InvalidRequest, RequestTimeout
from slackwater.storage.blobs import Purged, Upload, too_large
from slackwater.storage.idempotency import hash_of
from slackwater.wire.files import display_name

FORM_OVERHEAD_BYTES: Final = 64 << 10
LONGEST_VALUE: Final = 1024
MOST_DIGITS: Final = 18
Fields = Mapping[str, str]


def _any_fields(_: Fields) -> None:
    return None


@dataclass
class Receiver:
    """Sorts the events of a form: the part called `name` goes to `upload`, the others into `fields`.

    `check` sees the fields that came before the file, so that a wrong one is refused before the bytes come.
    """

    upload: Upload
    name: str
    check: Callable[[Fields], object] = _any_fields
    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    _part: str = ""
    _value: bytes = b""

    async def take(self, event: PartBegin | PartData | PartEnd) -> None:
        match event:
            case PartBegin(name=name, filename=filename):
                await self._begin(name, filename)
            case PartData(data=data) if self._part == self.name:
                await self.upload.write(data)
            case PartData(data=data):
                self._append(data)
            case PartEnd() if self._part != self.name:
                self._end_of_field()

    def close(self) -> None:
        """The form has ended.

        Raises:
            InvalidRequest: it had no file.
        """
        if self.filename is None:
            message = f"Missing required parameter: '{self.name}'."
            raise InvalidRequest(message, code="missing_required_parameter", param=self.name)

    async def _begin(self, name: str, filename: str | None) -> None:
        self._part, self._value = name, b""
        if name != self.name:
            return
        if self.filename is not None:
            raise InvalidRequest("One file is expected, not several.", code="invalid_multipart", param=name)
        self.filename = display_name(filename or "")
        self.check(self.fields)
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


async def receive(request: Request, receiver: Receiver, idle_seconds: float) -> bytes:
    """Read a form to its end: all bytes of its file are stored then. Returns their sha256. Use inside `kept`.

    Raises:
        TooLarge: the body is declared or found to be over the limit of the upload.
        InvalidRequest: the form is malformed or has no file.
        UnsupportedMedia: it is compressed.
        RequestTimeout: the client is too slow.
    """
    most = receiver.upload.most_bytes
    refuse_encoding(request)
    _refuse_declared_size(request, most)
    form = Form(boundary_of(request.headers.get("content-type", "")))
    total = 0
    async for piece in pieces(request, idle_seconds):
        total += len(piece)
        if total > most + FORM_OVERHEAD_BYTES:
            raise too_large(most)
        for event in form.feed(piece):
            await receiver.take(event)
    form.close()
    receiver.close()
    return await receiver.upload.flush()


def digest_of(receiver: Receiver, sha256: bytes, **more: str) -> bytes:
    """What stands for a whole form that was received: the bytes, the fields and the name of its file."""
    return hash_of([sha256.hex(), dict(receiver.fields), receiver.filename, more])


@asynccontextmanager
async def kept(upload: Upload) -> AsyncIterator[None]:
    """What was stored of `upload` is deleted if the block does not end well."""
    try:
        yield
    except Purged:
        raise RequestTimeout("The upload stood still for too long.") from None
    except BaseException:
        await asyncio.shield(upload.discard())
        raise


def _refuse_declared_size(request: Request, most_bytes: int) -> None:
    declared = request.headers.get("content-length", "")
    if len(declared) > MOST_DIGITS or (declared.isdecimal() and int(declared) > most_bytes + FORM_OVERHEAD_BYTES):
        raise too_large(most_bytes)
