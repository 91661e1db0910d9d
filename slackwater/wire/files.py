"""The file object (contract: WIRE 1.2), and which names and purposes a file may have."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from slackwater.wire.batch import unix

UPLOAD_PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
OUTPUT_PURPOSE: Final = "batch_output"
PURPOSES: Final = (*UPLOAD_PURPOSES, OUTPUT_PURPOSE)
BATCH_LIFE: Final = timedelta(days=30)
SHORTEST_LIFE_SECONDS: Final = 3_600
LONGEST_LIFE_SECONDS: Final = 2_592_000
LONGEST_NAME: Final = 255


def file_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """The OpenAI file object of one row of `file`. A file is readable at once, so its status is always `processed`."""
    return {
        "id": row["public_id"],
        "object": "file",
        "bytes": row["bytes"],
        "created_at": unix(row["created_at"]),
        "expires_at": unix(row["expires_at"]),
        "filename": row["filename"],
        "purpose": row["purpose"],
        "status": "processed",
        "status_details": None,
    }


def deleted_file(public_id: str) -> dict[str, Any]:
    return {"id": public_id, "object": "file", "deleted": True}


def display_name(name: str) -> str:
    """`name` as it may be shown: NFC, its last path part, no control or bidirectional characters, at most 255 characters.

    It is never used as a path. A name of which nothing is left becomes `upload`.
    """
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    kept = "".join(c for c in last if not unicodedata.category(c).startswith(("C", "Z")) or c == " ")
    return kept.strip()[:LONGEST_NAME].strip(" .") or "upload"


def life_of(purpose: str, expires_after_seconds: int | None) -> timedelta | None:
    """How long a file is kept: what was asked for, else 30 days for batch input and for ever otherwise."""
    if expires_after_seconds is not None:
        return timedelta(seconds=expires_after_seconds)
    return BATCH_LIFE if purpose == "batch" else None
