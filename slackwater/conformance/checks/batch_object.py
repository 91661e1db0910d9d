"""The batch object: every member, and how it moves through its life."""

from __future__ import annotations

from typing import Final

from slackwater.conformance.expect import equal, holds, members, ok
from slackwater.conformance.registry import Group
from slackwater.conformance.session import Session

shape = Group("batches.object", "1.6")
STAMPS: Final = (
    "in_progress_at",
    "expires_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
)
REQUIRED: Final = ("id", "object", "endpoint", "input_file_id", "completion_window", "status", "created_at")
OTHERS: Final = ("errors", "output_file_id", "error_file_id", "request_counts", "usage", "metadata")
DAY: Final = 86_400


@shape.check("every member is there from the start, null where there is nothing yet")
def has_every_member(session: Session) -> None:
    batch = ok(session.create())
    members(batch, (*REQUIRED, *STAMPS, *OTHERS), "batch")
    equal("object", batch["object"], "batch")
    holds(batch["id"].startswith("batch_"), f"the id is {batch['id']!r}")


@shape.check("endpoint, input_file_id and completion_window as they were asked for")
def repeats_what_was_asked(session: Session) -> None:
    file_id = session.file_of(session.lines(1))
    batch = ok(session.create(input_file_id=file_id))
    equal("input_file_id", batch["input_file_id"], file_id)
    equal("endpoint", batch["endpoint"], "/v1/chat/completions")
    equal("completion_window", batch["completion_window"], "24h")


@shape.check("expires_at = created_at + 86400 for 24h")
def expires_a_day_later(session: Session) -> None:
    batch = ok(session.create())
    equal("expires_at - created_at", batch["expires_at"] - batch["created_at"], DAY)


@shape.check("instants are whole unix seconds")
def stamps_are_seconds(session: Session) -> None:
    batch = session.completed()
    for name in ("created_at", *STAMPS):
        holds(batch[name] is None or type(batch[name]) is int, f"{name} is {batch[name]!r}")


@shape.check("completed: in_progress_at ≤ finalizing_at ≤ completed_at, the other final instants null")
def completed_has_its_stamps(session: Session) -> None:
    batch = session.completed()
    order = [batch[name] for name in ("created_at", "in_progress_at", "finalizing_at", "completed_at")]
    holds(None not in order and order == sorted(order), f"the instants are {order}")
    for name in ("failed_at", "expired_at", "cancelling_at", "cancelled_at"):
        equal(name, batch[name], None)


@shape.check("request_counts {total, completed, failed}, which add up when completed")
def counts_add_up(session: Session) -> None:
    counts = session.completed()["request_counts"]
    members(counts, ("total", "completed", "failed"), "request_counts")
    equal("total", counts["total"], 5)
    equal("completed + failed", counts["completed"] + counts["failed"], 5)


@shape.check("a side with no lines has file id null, not an empty file", section="1.8")
def clean_batch_has_no_error_file(session: Session) -> None:
    holds(not session.completed()["error_file_id"], "a batch without errors has an error file")


@shape.check("usage {input_tokens, input_tokens_details, output_tokens, output_tokens_details, total_tokens}")
def usage_adds_up(session: Session) -> None:
    usage = session.completed()["usage"]
    names = ("input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens")
    members(usage, names, "usage")
    members(usage["input_tokens_details"], ("cached_tokens",), "input_tokens_details")
    members(usage["output_tokens_details"], ("reasoning_tokens",), "output_tokens_details")
    equal("total_tokens", usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
    holds(usage["output_tokens"] > 0, "no output token was counted")


@shape.check("metadata as it was sent", section="1.5")
def metadata_is_kept(session: Session) -> None:
    equal("metadata", session.completed()["metadata"], {"kept": "as it is"})


@shape.check("errors null on a batch that is well")
def well_has_no_errors(session: Session) -> None:
    equal("errors", session.completed()["errors"], None)


@shape.check("failed: errors {object: list, data: […]}, failed_at set, no output file")
def failed_has_its_errors(session: Session) -> None:
    batch = session.failed()
    equal("status", batch["status"], "failed")
    equal("errors.object", batch["errors"]["object"], "list")
    holds(batch["failed_at"] and not batch["output_file_id"], "failed_at is not set, or there is an output file")


@shape.check("each of errors.data has code, message, param and line")
def errors_are_complete(session: Session) -> None:
    for error in session.failed()["errors"]["data"]:
        members(error, ("code", "message", "param", "line"), "error")


@shape.check("one bad line fails the whole batch: nothing of it runs")
def nothing_of_a_failed_batch_ran(session: Session) -> None:
    counts = session.failed()["request_counts"]
    equal("completed", counts["completed"], 0)


@shape.check("a final batch answers the same on every reading")
def final_is_final(session: Session) -> None:
    batch = session.completed()
    again = session.batch(batch["id"])
    names = (*REQUIRED, *STAMPS, *OTHERS)
    equal("the batch", {name: again[name] for name in names}, {name: batch[name] for name in names})
