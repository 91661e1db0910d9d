"""`/v1/batches/{batch_id}/results` and `/requests/{custom_id}`: lines one by one, while the batch runs and after (contract: WIRE 8)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from api.auth import BatchesReader, Store
from api.batch_lookup import found
from api.downloads import begun
from slackwater.errors import InvalidRequest, NotFound
from slackwater.lifecycle import Outcome
from slackwater.storage import batch_lines
from slackwater.storage.batch_lines import Found
from slackwater.wire.lines import line_id, line_of

Ended = Literal["succeeded", "failed", "expired", "cancelled"]
MOST: Final = 10_000


class AnyText(Convertor[str]):
    """The rest of a path, slashes and line breaks included: a custom_id may hold anything."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any_text", AnyText())
router = APIRouter(prefix="/v1/batches", tags=["batches"])


@router.get("/{batch_id}/results", response_class=Response)
async def results(
    batch_id: str,
    caller: BatchesReader,
    database: Store,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 1000,
    status: Ended | None = None,
) -> Response:
    """The stored lines of both sides as JSONL, in input order. `after` is the `id` of the last line that was read.

    `x-last-id` is the next page's `after`, `x-has-more` says whether there is one. While the batch runs, lines that end
    later may lie before a cursor: a reader that wants all of them begins again, or waits for the end.
    """
    outcome = None if status is None else Outcome[status.upper()]
    async with database.tenant(caller.tenant_id) as connection:
        row = await found(connection, caller.tenant_id, batch_id)
        at = 0 if after is None else _line(after, row["id"])
        page = await batch_lines.page(connection, caller.tenant_id, row["id"], at, limit, outcome)
    headers = {"cache-control": "no-store", "x-has-more": str(page.has_more).lower()}
    if page.last:
        headers["x-last-id"] = line_id(row["id"], page.last)
    return StreamingResponse(
        await begun(batch_lines.read(database, page)), headers=headers, media_type="application/jsonl"
    )


@router.get("/{batch_id}/requests/{custom_id:any_text}", response_class=Response)
async def request(batch_id: str, custom_id: str, caller: BatchesReader, database: Store) -> Response:
    """One request by its custom_id: its state, its attempts, and its line once it has one."""
    async with database.tenant(caller.tenant_id) as connection:
        row = await found(connection, caller.tenant_id, batch_id)
        it = None
        if "\0" not in custom_id:
            skips = row["on_invalid"] == "skip"
            it = await batch_lines.find(connection, caller.tenant_id, row["id"], custom_id, may_be_refused=skips)
    if it is None:
        raise NotFound("This batch has no request with that custom_id.", param="custom_id")
    return Response(_object(row["public_id"], row["endpoint"], custom_id, row["id"], it), media_type="application/json")


def _object(batch: str, endpoint: str, custom_id: str, batch_id: int, it: Found) -> bytes:
    """The stored line goes in as it is: parsing and writing it again could change an engine's numbers."""
    head: dict[str, Any] = {
        "id": line_id(batch_id, it.line),
        "object": "batch.request",
        "batch_id": batch,
        "custom_id": custom_id,
        "line": it.line,
        "endpoint": endpoint,
        "model": it.model,
        "status": it.state.value,
        "attempts": it.attempts,
    }
    result = b"null" if it.result is None else it.result.rstrip(b"\n")
    return json.dumps(head)[:-1].encode() + b', "result": ' + result + b"}"


def _line(after: str, batch_id: int) -> int:
    line = line_of(after, batch_id)
    if line is None:
        raise InvalidRequest("There is no such cursor.", code="invalid_value", param="after")
    return line
