"""The ids and codes of lines in output and error files that are ours to choose."""

from __future__ import annotations

import re
from typing import Final

from slackwater.lifecycle import Outcome

ENDED: Final[dict[Outcome, tuple[str, str]]] = {
    Outcome.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    Outcome.CANCELLED: ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}


def line_id(batch_id: int, line: int) -> str:
    """The id of an output or error line: the same however often the request was run."""
    return f"batch_req_{batch_id:x}_{line:x}"


LINE_ID: Final = re.compile(r"batch_req_([0-9a-f]{1,16})_([0-9a-f]{1,7})", re.ASCII)


def line_of(line_id_: str, batch_id: int) -> int | None:
    """The physical line that an id of `line_id` stands for; None when it is no id of this batch."""
    found = LINE_ID.fullmatch(line_id_)
    return int(found[2], 16) if found and int(found[1], 16) == batch_id else None
