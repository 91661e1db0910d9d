"""The fields beside the file in the form of `POST /v1/files`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from api.receiving import Fields
from slackwater.errors import InvalidRequest
from slackwater.wire.files import LONGEST_LIFE_SECONDS, SHORTEST_LIFE_SECONDS, UPLOAD_PURPOSES, life_of

FILE: Final = "file"
PURPOSE: Final = "purpose"
ANCHOR: Final = "expires_after[anchor]"
SECONDS: Final = "expires_after[seconds]"
DIGITS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def check_early(fields: Fields) -> None:
    """Refuse a wrong purpose that came before the file.

    Raises:
        InvalidRequest: it is not for uploads.
    """
    if PURPOSE in fields:
        purpose_of(fields)


def purpose_of(fields: Fields) -> str:
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


def life_asked(fields: Fields) -> timedelta | None:
    """How long the file is to be kept; None for ever.

    Raises:
        InvalidRequest: the purpose or `expires_after` is wrong.
    """
    return life_of(purpose_of(fields), _seconds(fields))


def _seconds(fields: Fields) -> int | None:
    if ANCHOR not in fields and SECONDS not in fields:
        return None
    if fields.get(ANCHOR) != "created_at":
        raise InvalidRequest(
            "Invalid value. Supported values are: 'created_at'.", code="invalid_value", param="expires_after.anchor"
        )
    text = fields.get(SECONDS, "")
    if not DIGITS.fullmatch(text) or not SHORTEST_LIFE_SECONDS <= int(text) <= LONGEST_LIFE_SECONDS:
        raise InvalidRequest(
            f"A number of seconds from {SHORTEST_LIFE_SECONDS} to {LONGEST_LIFE_SECONDS} is expected.",
            code="invalid_value",
            param="expires_after.seconds",
        )
    return int(text)
