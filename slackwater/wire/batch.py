"""The batch object, and its counts and usage (contract: WIRE 1.6; extensions: WIRE 8, P0.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from slackwater.lifecycle import BatchState
from slackwater.pricing import dollars

EVENT_MEMBERS = ("id", "request_counts", "output_file_id", "error_file_id", "usage", "metadata", "webhook_metadata")
STAMPS = (
    "in_progress_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over a batch's results. Tokens and picodollars count each stored result once."""

    succeeded: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cached_known: int = 0
    cost_picodollars: int = 0

    @property
    def errors(self) -> int:
        """Lines of the error file."""
        return self.failed + self.expired + self.cancelled

    @property
    def done(self) -> int:
        return self.succeeded + self.errors

    @classmethod
    def of(cls, row: Mapping[str, Any] | None) -> Counts:
        """From a row of sums; sums over nothing are None and count as zero."""
        return cls(**{field.name: int((row or {}).get(field.name) or 0) for field in fields(cls)})

    def as_json(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


# Sums the slots of `progress` into the names of `Counts`.
COUNT_COLUMNS = ", ".join(f"sum({field.name})::bigint AS {field.name}" for field in fields(Counts))


def request_counts(total: int, counts: Counts, *, running: int = 0) -> dict[str, int]:
    """`completed` are the lines of the output file, `failed` those of the error file; the rest is ours."""
    running = min(running, total - counts.done)
    return {
        "total": total,
        "completed": counts.succeeded,
        "failed": counts.errors,
        "queued": total - counts.done - running,
        "processing": running,
        "expired": counts.expired,
        "cancelled": counts.cancelled,
    }


def usage(counts: Counts) -> dict[str, Any]:
    """Token sums. `cached_tokens` is null where no engine told how many were cached."""
    return {
        "input_tokens": counts.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counts.cached_tokens if counts.cached_known else None},
        "output_tokens": counts.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
    }


def unix(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def batch_object(
    row: Mapping[str, Any],
    counts: Counts,
    *,
    running: int = 0,
    waiting: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """The OpenAI batch object of one row of `batch`.

    `counts` are the live sums, or the frozen ones once the batch is final. `waiting` is what `slackwater.explain` says of it.
    File ids appear with the first line of their side.
    """
    state = BatchState(row["state"])
    return {
        "id": row["public_id"],
        "object": "batch",
        "endpoint": row["endpoint"],
        "model": model,
        "errors": row["errors"],
        "input_file_id": row["input_file_id"],
        "completion_window": row["completion_window"],
        "status": state.word,
        "output_file_id": row["output_file_id"] if counts.succeeded else None,
        "error_file_id": row["error_file_id"] if counts.errors else None,
        "created_at": unix(row["created_at"]),
        "expires_at": unix(row["expires_at"]),
        **{stamp: unix(row[stamp]) for stamp in STAMPS},
        "request_counts": request_counts(row["total"], counts, running=running),
        "usage": usage(counts),
        "metadata": row["metadata"],
        "priority": row["priority"],
        "on_invalid": row["on_invalid"],
        "output_order": row["output_order"],
        "webhook_metadata": row["webhook_metadata"],
        "retry_of": row["retry_of"],
        "cost": {"currency": "USD", "total": dollars(counts.cost_picodollars)},
        **(waiting or {"waiting_reason": None, "place_in_line": None, "estimated_completion_at": None}),
    }


def event_data(row: Mapping[str, Any], state: BatchState, counts: Counts) -> dict[str, Any]:
    """What a subscriber is told of a batch that ended as `state`: its id, counts, usage and files; never prompts or outputs."""
    shown = batch_object(row, counts)
    return {name: shown[name] for name in EVENT_MEMBERS} | {"status": state.word}
