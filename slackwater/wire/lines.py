"""The ids and codes of lines in output and error files that are ours to choose."""

from __future__ import annotations

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
