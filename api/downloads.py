"""The bytes of a file on their way out: whole, or one range of what can no longer change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response, StreamingResponse

from slackwater.lifecycle import Side
from slackwater.storage import blobs, outputs
from slackwater.storage.database import Database
from slackwater.wire.errors import envelope
from slackwater.wire.ranges import Span, Unsatisfiable, span_of

MEDIA_TYPE = "application/octet-stream"


async def content(database: Database, tenant_id: int, row: Mapping[str, Any], asked: Mapping[str, str]) -> Response:
    """The reply for a row of `slackwater.storage.files`; `asked` are the request's headers.

    Raises:
        Gone: the bytes were purged since the row was read.
    """
    if row["batch_id"] is None:
        return await _fixed(row, asked, lambda span: blobs.read(database, tenant_id, row["id"], span))
    side, batch_id = Side(row["side"]), row["batch_id"]
    index = await outputs.index_of(database, tenant_id, batch_id, side)
    if index is None:
        return _growing(row, await begun(outputs.whole(database, tenant_id, batch_id, side)))
    return await _fixed(
        row, asked, lambda span: outputs.part(database, tenant_id, batch_id, side, index, span), size=index.bytes
    )


async def begun(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, of which the first piece has been read: what is gone already is not promised by a reply's head.

    Raises:
        Gone: it was purged since it was found.
    """
    first = await anext(body, b"")

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in body:
            yield piece

    return pieces()


def _growing(row: Mapping[str, Any], body: AsyncIterator[bytes]) -> Response:
    """What there is so far. Nothing of it may be kept or pieced together: there may be more a moment later."""
    return StreamingResponse(body, headers={"cache-control": "no-store", **_names(row)}, media_type=MEDIA_TYPE)


async def _fixed(
    row: Mapping[str, Any],
    asked: Mapping[str, str],
    body: Callable[[Span], AsyncIterator[bytes]],
    *,
    size: int | None = None,
) -> Response:
    whole = Span(0, row["bytes"] if size is None else size)
    tag = f'"{row["public_id"]}"'
    headers = {"etag": tag, "accept-ranges": "bytes", "cache-control": "private, no-cache", **_names(row)}
    if tag in [known.strip() for known in asked.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    wanted = asked.get("range") if asked.get("if-range", tag) == tag else None
    try:
        part = span_of(wanted, whole.stop)
    except Unsatisfiable:
        return _unsatisfiable(whole.stop)
    span = part or whole
    headers["content-length"] = str(span.length)
    if part:
        headers["content-range"] = f"bytes {span.start}-{span.stop - 1}/{whole.stop}"
    return StreamingResponse(await begun(body(span)), 206 if part else 200, headers, MEDIA_TYPE)


def _unsatisfiable(size: int) -> Response:
    error = envelope("The file has no such range.", "invalid_request_error", code="range_not_satisfiable")
    return JSONResponse(error, 416, {"content-range": f"bytes */{size}"})


def _names(row: Mapping[str, Any]) -> dict[str, str]:
    """The name in its encoded form only: it cannot break out of the header."""
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(row['filename'], safe='')}"}
