"""List pages: the newest first unless asked otherwise, a cursor that is the last id seen (contract: WIRE 1.10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def page(items: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """One page. `has_more` is true only where a next page holds at least one item."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }
