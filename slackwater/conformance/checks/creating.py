"""`POST /v1/batches`: what is refused at once, and where the refusal points."""

from __future__ import annotations

from typing import Any, Final

from slackwater.conformance.expect import equal, holds, ok, refused
from slackwater.conformance.registry import Group, Test
from slackwater.conformance.session import NO_BATCH, NO_FILE, Session

create = Group("batches.create", "1.7")
WEEK: Final = 7 * 86_400


def _refusal(param: str | None, code: str | None = "*", says: str = "", **members: Any) -> Test:
    def test(session: Session) -> None:
        refused(
            session.create(input_file_id=members.pop("input_file_id", NO_FILE), **members),
            400,
            param=param,
            code=code,
            says=says,
        )

    return test


def _without(name: str) -> Test:
    def test(session: Session) -> None:
        refused(session.create(**{name: None}), 400, param=name)

    return test


create.add(
    "bad_endpoint_is_400",
    "400 naming endpoint, code invalid_value, listing what is supported",
    _refusal("endpoint", "invalid_value", "Supported values are", endpoint="/v1/invalid/endpoint"),
)
create.add(
    "odd_window_is_400", "400 naming completion_window", _refusal("completion_window", completion_window="invalid")
)
create.add("empty_window_is_400", "400 naming completion_window", _refusal("completion_window", completion_window=""))
create.add("window_must_be_text", "400 naming completion_window", _refusal("completion_window", completion_window=24))
for _name in ("input_file_id", "endpoint", "completion_window"):
    create.add(f"missing_{_name}_is_400", f"400 naming {_name}", _without(_name))
create.add(
    "metadata_array_is_400",
    "400, param metadata.tags, code invalid_type, `expected a string, but got an array instead.`",
    _refusal("metadata.tags", "invalid_type", "expected a string, but got an array instead", metadata={"tags": ["a"]}),
)
create.add(
    "metadata_number_is_400",
    "400, param metadata.n, code invalid_type",
    _refusal("metadata.n", "invalid_type", metadata={"n": 1}),
)
create.add(
    "metadata_of_17_is_400",
    "400 naming metadata: at most 16 pairs",
    _refusal("metadata", metadata={f"k{n}": "v" for n in range(17)}),
)
create.add("metadata_key_of_65_is_400", "400: at most 64 characters in a key", _refusal("*", metadata={"k" * 65: "v"}))
create.add(
    "metadata_value_of_513_is_400", "400: at most 512 characters in a value", _refusal("*", metadata={"k": "v" * 513})
)
create.add(
    "output_expiry_too_short_is_400",
    "400 for output_expires_after.seconds under 3600",
    _refusal("output_expires_after.seconds", output_expires_after={"anchor": "created_at", "seconds": 3599}),
)
create.add(
    "output_expiry_anchor_is_400",
    "400 for another anchor",
    _refusal("output_expires_after.anchor", output_expires_after={"anchor": "now", "seconds": 3600}),
)


@create.check("200 with all of 16 pairs, keys of 64 and values of 512 characters", section="1.5")
def takes_metadata_at_its_limits(session: Session) -> None:
    metadata = {f"{n:02}" + "k" * 62: "v" * 512 for n in range(16)}
    equal("metadata", ok(session.create(input_file_id=NO_FILE, metadata=metadata))["metadata"], metadata)


@create.check("200 with metadata null, shown as null", section="1.5")
def takes_null_metadata(session: Session) -> None:
    body = {"input_file_id": NO_FILE, "endpoint": "/v1/chat/completions", "completion_window": "24h", "metadata": None}
    equal("metadata", ok(session.post("/v1/batches", body))["metadata"], None)


@create.check("200 with status validating", section="1.6")
def begins_as_validating(session: Session) -> None:
    equal("status", ok(session.create())["status"], "validating")


@create.check(
    "200 with output_expires_after; the output file then expires so long after its own creation", section="1.5"
)
def output_expiry_is_kept(session: Session) -> None:
    batch = session.run(session.lines(1), output_expires_after={"anchor": "created_at", "seconds": WEEK})
    file = ok(session.get(f"/v1/files/{batch['output_file_id']}"))
    equal("expires_at - created_at", file["expires_at"] - file["created_at"], WEEK)


@create.check("a text/plain metadata value comes back as it was sent", section="1.5")
def keeps_metadata(session: Session) -> None:
    metadata = {"a b": "Ünïcode \U0001f600", "empty": ""}
    batch = ok(session.create(input_file_id=NO_FILE, metadata=metadata))
    equal("metadata", session.batch(batch["id"])["metadata"], metadata)


@create.check("404 `No batch found …` for an unknown id")
def unknown_batch_is_404(session: Session) -> None:
    refused(session.get(f"/v1/batches/{NO_BATCH}"), 404, says="No batch found")


@create.check("200, then status failed: an unknown input file is found out later", section="1.7")
def unknown_file_fails_later(session: Session) -> None:
    batch = session.final(ok(session.create(input_file_id=NO_FILE))["id"])
    equal("status", batch["status"], "failed")
    error = batch["errors"]["data"][0]
    equal("code", error["code"], "invalid_request")
    equal("param", error["param"], "file_id")
    equal("line", error["line"], None)
    holds("Cannot find file" in error["message"], f"the message is {error['message']!r}")


@create.check("the same for a file that was deleted before", section="1.7")
def deleted_file_fails_later(session: Session) -> None:
    file_id = session.file_of(session.lines(1))
    ok(session.ask("DELETE", f"/v1/files/{file_id}"))
    batch = session.final(ok(session.create(input_file_id=file_id))["id"])
    equal("status", batch["status"], "failed")
    equal("param", batch["errors"]["data"][0]["param"], "file_id")


@create.check("a batch goes on when its input file is deleted after the create", section="8")
def deleting_the_input_later_is_no_fault(session: Session) -> None:
    file_id = session.file_of(session.lines(1))
    batch = ok(session.create(input_file_id=file_id))
    ok(session.ask("DELETE", f"/v1/files/{file_id}"))
    equal("status", session.final(batch["id"])["status"], "completed")
