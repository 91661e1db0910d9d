"""The events of one batch, told from its row alone: any process can go on where another left off. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from slackwater.lifecycle import BatchState
from slackwater.wire.batch import STAMPS, Counts, batch_object, unix

PLACE: Final = re.compile(r"([0-9]{1,2})\.([0-9]{1,9})", re.ASCII)
SHOWN: Final = ("id", "status", "request_counts", "output_file_id", "error_file_id", "usage", "metadata")


@dataclass(frozen=True, slots=True, order=True)
class Seen:
    """How far a reader is: the number of the last status change, and how many requests had ended."""

    step: int = -1
    done: int = 0

    @classmethod
    def of(cls, event_id: str | None) -> Seen:
        """From a `Last-Event-ID`; the beginning where it is none of ours."""
        found = PLACE.fullmatch(event_id or "")
        return cls(int(found[1]), int(found[2])) if found else cls()

    def __str__(self) -> str:
        return f"{self.step}.{self.done}"


@dataclass(frozen=True, slots=True)
class BatchEvent:
    """One event: `type` is `batch.` and a status or `progress`; `seen` is where it leaves a reader."""

    seen: Seen
    type: str
    body: Mapping[str, Any]


def steps(row: Mapping[str, Any]) -> list[tuple[BatchState, datetime]]:
    """Every status the batch has had, with its time; a later one only adds to the list."""
    known = [(BatchState.VALIDATING, row["created_at"])]
    known += [(BatchState[stamp.removesuffix("_at").upper()], row[stamp]) for stamp in STAMPS if row[stamp]]
    return sorted(known, key=lambda step: (step[0].is_final, step[0] is BatchState.CANCELLING, step[0]))


def news(row: Mapping[str, Any], counts: Counts, seen: Seen, now: datetime) -> list[BatchEvent]:
    """What a reader at `seen` has missed: each change of status, or else the progress since; old changes tell today's counts."""
    known = steps(row)
    last = len(known) - 1
    shown = {name: value for name, value in batch_object(row, counts).items() if name in SHOWN}
    missed = [
        _event(Seen(n, counts.done), f"batch.{state.word}", at, shown)
        for n, (state, at) in enumerate(known)
        if n > seen.step
    ]
    if missed or seen.step > last or counts.done <= seen.done or known[last][0].is_final:
        return missed
    return [_event(Seen(last, counts.done), "batch.progress", now, shown)]


def is_over(row: Mapping[str, Any], seen: Seen) -> bool:
    """The batch is final and the reader knows it."""
    return BatchState(row["state"]).is_final and seen.step >= len(steps(row)) - 1


def _event(seen: Seen, type_: str, at: datetime, shown: Mapping[str, Any]) -> BatchEvent:
    return BatchEvent(seen, type_, {"object": "event", "type": type_, "created_at": unix(at), "data": shown})
