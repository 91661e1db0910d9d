"""Cancelling: which states allow it, and what a client is told."""

from __future__ import annotations

from slackwater.conformance.expect import equal, holds, never_again, ok, refused
from slackwater.conformance.registry import Group
from slackwater.conformance.session import MANY, NO_BATCH, Session

cancel = Group("batches.cancel", "1.9")


@cancel.check("200 with status cancelling, cancelling_at set")
def begins_cancelling(session: Session) -> None:
    batch_id = ok(session.create(session.lines(MANY)))["id"]
    batch = ok(session.post(f"/v1/batches/{batch_id}/cancel"))
    holds(batch["status"] in ("cancelling", "cancelled"), f"the status is {batch['status']}")
    holds(batch["cancelling_at"], "cancelling_at is not set")


@cancel.check("then cancelled, cancelled_at set")
def ends_cancelled(session: Session) -> None:
    batch = session.cancelled()
    equal("status", batch["status"], "cancelled")
    holds(batch["cancelled_at"], "cancelled_at is not set")


@cancel.check("an empty body typed application/json, as the SDK sends it, is no fault", section="1.1")
def takes_an_empty_body(session: Session) -> None:
    batch_id = ok(session.create(session.lines(MANY)))["id"]
    ok(session.post_raw(f"/v1/batches/{batch_id}/cancel", b""))


@cancel.check("a body {} (Vercel AI SDK) is no fault", section="1.1")
def takes_an_object(session: Session) -> None:
    batch_id = ok(session.create(session.lines(MANY)))["id"]
    ok(session.post(f"/v1/batches/{batch_id}/cancel", {}))


@cancel.check("200 with the same object when it is cancelled again", section="1.7")
def again_is_the_same(session: Session) -> None:
    batch = session.cancelled()
    again = ok(session.post(f"/v1/batches/{batch['id']}/cancel"))
    for name in ("id", "status", "cancelling_at", "cancelled_at", "request_counts"):
        equal(name, again[name], batch[name])


@cancel.check("409 `Cannot cancel a batch with status 'completed'.`, param and code null", section="1.7")
def completed_is_409(session: Session) -> None:
    reply = session.post(f"/v1/batches/{session.completed()['id']}/cancel")
    refused(reply, 409, param=None, code=None, says="Cannot cancel a batch with status 'completed'.")


@cancel.check("409 for a failed one", section="1.7")
def failed_is_409(session: Session) -> None:
    reply = session.post(f"/v1/batches/{session.failed()['id']}/cancel")
    refused(reply, 409, param=None, code=None, says="Cannot cancel a batch with status 'failed'.")


@cancel.check("the 409 carries x-should-retry: false, else the SDK calls three times", section="1.12")
def conflict_is_not_retried(session: Session) -> None:
    never_again(session.post(f"/v1/batches/{session.completed()['id']}/cancel"))


@cancel.check("404 for an unknown id")
def unknown_is_404(session: Session) -> None:
    refused(session.post(f"/v1/batches/{NO_BATCH}/cancel"), 404)


@cancel.check("requests that did not run are in the error file as batch_cancelled", section="1.8")
def rest_is_in_the_error_file(session: Session) -> None:
    batch = session.cancelled()
    lines = session.output(batch, "error_file_id")
    codes = {line["error"]["code"] for line in lines if line["error"]}
    equal("codes", codes, {"batch_cancelled"})
    holds(all(line["response"] is None for line in lines if line["error"]), "a cancelled line has a response")
