"""Finding the batch that a path names, for its tenant; whatever is wrong with the id looks the same."""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import InvalidRequest, NotFound
from slackwater.storage import batch_view

BATCH_ID: Final = re.compile(r"batch_[0-9a-f]{32}", re.ASCII)


def missing() -> NotFound:
    return NotFound("No batch found with that id.")


def known_id(batch_id: str) -> str:
    """The id, if it can be one.

    Raises:
        NotFound: it cannot.
    """
    if not BATCH_ID.fullmatch(batch_id):
        raise missing()
    return batch_id


async def found(connection: AsyncConnection, tenant_id: int, batch_id: str) -> RowMapping:
    """The row of a batch.

    Raises:
        NotFound: the tenant has no such batch.
    """
    row = await batch_view.find(connection, tenant_id, known_id(batch_id))
    if row is None:
        raise missing()
    return row


async def shown(connection: AsyncConnection, tenant_id: int, batch_id: str) -> dict[str, Any]:
    """The object of a batch.

    Raises:
        NotFound: the tenant has no such batch.
    """
    return (await batch_view.objects(connection, [await found(connection, tenant_id, batch_id)]))[0]


async def cursor(connection: AsyncConnection, tenant_id: int, after: str | None) -> int | None:
    """The place in the list that `after` names.

    Raises:
        InvalidRequest: it names none.
    """
    if after is None:
        return None
    place = await batch_view.cursor_of(connection, tenant_id, after) if BATCH_ID.fullmatch(after) else None
    if place is None:
        raise InvalidRequest("There is no such cursor.", code="invalid_value", param="after")
    return place
