"""Changing a batch that waits, running again what failed, and dry runs."""

from __future__ import annotations

import uuid
from typing import Any, Final

from slackwater.conformance.expect import equal, members, offered, ok, refused, taken
from slackwater.conformance.registry import Group
from slackwater.conformance.session import CHAT, NO_BATCH, NO_FILE, Session, jsonl

change = Group("ext.change", "8")
retry = Group("ext.retry", "8")
validate = Group("ext.validate", "8")
NO_MODEL: Final = "no-such-model-anywhere"
HOUR: Final = 3_600


def _long_batch(session: Session) -> dict[str, Any]:
    """A batch that will run for a while, on a server that has the route at all: nobody pays for it where it has not."""
    reply = session.ask("PATCH", f"/v1/batches/{session.completed()['id']}", json={"priority": 1})
    offered(reply, 409)
    return ok(session.create(input_file_id=session.many()))


def _changed(session: Session, batch_id: str, **members: object) -> dict[str, Any]:
    return ok(session.ask("PATCH", f"/v1/batches/{batch_id}", json=members))


@change.check("PATCH changes priority and window of a batch that has not ended; the window counts from its creation")
def priority_and_window(session: Session) -> None:
    made = _long_batch(session)
    equal("priority", _changed(session, made["id"], priority=-9)["priority"], -9)
    batch = _changed(session, made["id"], completion_window="36h")
    equal("priority", batch["priority"], -9)
    equal("expires_at", batch["expires_at"], made["created_at"] + 36 * HOUR)
    equal("completion_window", session.batch(made["id"])["completion_window"], "36h")
    ok(session.post(f"/v1/batches/{made['id']}/cancel"))


@change.check("400 naming what it cannot be, 409 for a batch that has ended, 404 for an unknown one")
def refuses_the_rest(session: Session) -> None:
    made = _long_batch(session)
    path = f"/v1/batches/{made['id']}"
    refused(session.ask("PATCH", path, json={"priority": 101}), 400, param="priority")
    refused(session.ask("PATCH", path, json={"completion_window": "soon"}), 400, param="completion_window")
    refused(session.ask("PATCH", path, json={"endpoint": CHAT}), 400, param="endpoint")
    ok(session.post(f"{path}/cancel"))
    refused(session.ask("PATCH", f"/v1/batches/{session.completed()['id']}", json={"priority": 1}), 409)
    refused(session.ask("PATCH", f"/v1/batches/{NO_BATCH}", json={"priority": 1}), 404)


def _with_a_failure(session: Session) -> dict[str, Any]:
    """A completed batch with one line that failed, the same for all checks of this kind."""
    return dict(session.shared.once("with a failure", lambda: _run_with_a_failure(session)))


def _run_with_a_failure(session: Session) -> dict[str, Any]:
    bad = session.line("bad")
    bad["body"]["model"] = NO_MODEL
    made = taken(
        session.create(jsonl([session.line("good"), bad]), on_invalid="skip", metadata={"a": "b"}), "on_invalid"
    )
    return session.final(made["id"])


@retry.check("a new batch of the lines that failed, retry_of naming the old one, which stays as it is")
def makes_a_new_batch(session: Session) -> None:
    old = _with_a_failure(session)
    new = ok(offered(session.post(f"/v1/batches/{old['id']}/retry")))
    equal("retry_of", new["retry_of"], old["id"])
    equal("metadata", new["metadata"], {"a": "b"})
    ended = session.final(new["id"])
    equal("total", ended["request_counts"]["total"], 1)
    equal("custom_ids", [line["custom_id"] for line in session.output(ended, "error_file_id")], ["bad"])
    equal("the old batch", session.batch(old["id"]), old)


@retry.check("the same Idempotency-Key gives the same new batch")
def is_made_once(session: Session) -> None:
    path, key = f"/v1/batches/{_with_a_failure(session)['id']}/retry", {"idempotency-key": uuid.uuid4().hex}
    first, second = (ok(offered(session.post(path, headers=key))) for _ in range(2))
    equal("id", second["id"], first["id"])


@retry.check("409 where nothing failed, 404 for an unknown batch")
def refuses_what_is_well(session: Session) -> None:
    offered(session.post(f"/v1/batches/{_with_a_failure(session)['id']}/retry"))
    refused(session.post(f"/v1/batches/{session.completed()['id']}/retry"), 409, code="nothing_to_retry")
    refused(session.post(f"/v1/batches/{NO_BATCH}/retry"), 404)


def _dry(session: Session, **members: object) -> dict[str, Any]:
    return ok(offered(session.post("/v1/batches/validate", {"endpoint": CHAT} | members)))


@validate.check("a dry run counts requests and guesses the prompts' tokens, and no batch is made")
def counts_and_makes_nothing(session: Session) -> None:
    file_id = session.file_of(session.lines(3))
    run = _dry(session, input_file_id=file_id)
    members(run, ("valid", "request_counts", "estimated_input_tokens", "errors"), "dry run")
    equal("valid and errors", (run["valid"], run["errors"]), (True, None))
    equal("request_counts", run["request_counts"], {"total": 3, "valid": 3, "invalid": 0})
    listed = ok(session.get("/v1/batches", params={"limit": "100"}))["data"]
    equal("batches over the file", [batch["id"] for batch in listed if batch["input_file_id"] == file_id], [])


@validate.check("every error as a batch would tell it: code, line, param, message")
def tells_every_error(session: Session) -> None:
    run = _dry(session, input_file_id=session.file_of(session.lines(1) + b"no JSON\n" + session.lines(1)))
    equal("valid", run["valid"], False)
    found = [(error["code"], error["line"]) for error in run["errors"]["data"]]
    equal("errors", found, [("invalid_json_line", 2), ("duplicate_custom_id", 3)])


@validate.check("requests in the body can be tried, too")
def takes_requests(session: Session) -> None:
    equal("valid", _dry(session, requests=[session.line("a")])["valid"], True)


@validate.check("404 naming input_file_id for an unknown file")
def unknown_file_is_404(session: Session) -> None:
    _dry(session, input_file_id=session.file_of(session.lines(1)))
    refused(
        session.post("/v1/batches/validate", {"endpoint": CHAT, "input_file_id": NO_FILE}), 404, param="input_file_id"
    )
