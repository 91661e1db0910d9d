"""Finding batches in the list by status and by metadata."""

from __future__ import annotations

import uuid

from slackwater.conformance.expect import NotOffered, equal, holds, ok, refused
from slackwater.conformance.registry import Group
from slackwater.conformance.session import NO_FILE, Session

finding = Group("ext.list", "8")


def _found(session: Session, **query: str) -> list[str]:
    return [batch["id"] for batch in ok(session.get("/v1/batches", params=query))["data"]]


@finding.check("metadata[key]=value leaves out every batch without that pair; several pairs must all be there")
def by_metadata(session: Session) -> None:
    mark = uuid.uuid4().hex
    ids = [ok(session.create(input_file_id=NO_FILE, metadata={"mark": mark, "n": n}))["id"] for n in ("1", "2")]
    if _found(session, **{"metadata[mark]": uuid.uuid4().hex}):
        raise NotOffered("the filter is ignored: batches without that pair are listed")
    equal("ids", _found(session, **{"metadata[mark]": mark}), ids[::-1])
    equal("ids", _found(session, **{"metadata[mark]": mark, "metadata[n]": "1"}), ids[:1])


@finding.check("status=failed leaves out every batch with another status")
def by_status(session: Session) -> None:
    failed, completed = session.failed()["id"], session.completed()["id"]
    listed = ok(session.get("/v1/batches", params={"status": "failed", "limit": "100"}))["data"]
    if {batch["status"] for batch in listed} != {"failed"}:
        raise NotOffered("the filter is ignored: batches of another status are listed")
    holds(completed not in [batch["id"] for batch in listed], "a completed batch is listed as failed")
    mark = uuid.uuid4().hex
    made = ok(session.create(input_file_id=NO_FILE, metadata={"mark": mark}))["id"]
    session.final(made)
    equal("ids", _found(session, **{"status": "failed", "metadata[mark]": mark}), [made])
    equal("ids", _found(session, **{"status": "completed", "metadata[mark]": mark}), [])
    holds(failed, "no failed batch")


@finding.check("400 naming status for a word that is none")
def another_status_is_400(session: Session) -> None:
    reply = session.get("/v1/batches", params={"status": "finished"})
    if reply.status_code == 200:
        raise NotOffered("the filter is ignored")
    refused(reply, 400, param="status")
