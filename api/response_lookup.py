"""Finding the background response that a path names, for its tenant; whatever is wrong with the id looks the same."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import NotFound
from slackwater.storage import responses
from slackwater.storage.responses import Found

RESPONSE_ID: Final = re.compile(r"resp_[0-9a-f]{32}", re.ASCII)


def missing() -> NotFound:
    return NotFound("No response found with that id.")


def known_id(response_id: str) -> str:
    """The id, if it can be one.

    Raises:
        NotFound: it cannot.
    """
    if not RESPONSE_ID.fullmatch(response_id):
        raise missing()
    return response_id


async def found(connection: AsyncConnection, tenant_id: int, response_id: str) -> Found:
    """A response as it is now.

    Raises:
        NotFound: the tenant has no such response.
    """
    there = await responses.find(connection, tenant_id, known_id(response_id))
    if there is None:
        raise missing()
    return there
