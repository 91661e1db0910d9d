"""A batch line by line: pages of results, one request, and events as they happen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from httpx2 import Response

from slackwater.conformance.expect import equal, holds, members, offered, ok, refused, told
from slackwater.conformance.registry import Group
from slackwater.conformance.session import NO_BATCH, Session

results = Group("ext.results", "8")
requests = Group("ext.requests", "8")
events = Group("ext.events", "8")
REQUEST: Final = ("id", "custom_id", "status", "attempts", "model", "result")


def _results(session: Session, batch: dict[str, Any], **query: object) -> Response:
    asked = {name: str(value) for name, value in query.items()}
    return offered(session.get(f"/v1/batches/{batch['id']}/results", params=asked))


def _lines(reply: Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in reply.content.split(b"\n") if line]


@results.check("JSONL of both sides in input order, the same lines as in the files")
def are_the_stored_lines(session: Session) -> None:
    reply = _results(session, session.completed())
    equal("lines", _lines(reply), sorted(session.output(session.completed()), key=lambda line: line["custom_id"]))
    equal("x-has-more", reply.headers.get("x-has-more"), "false")


@results.check("after=<id of the last line> goes on behind it, each line once, until x-has-more is false")
def resume_after_a_line(session: Session) -> None:
    found: list[str] = []
    reply = _results(session, session.completed(), limit=2)
    for _ in range(5):
        found += [line["custom_id"] for line in _lines(reply)]
        equal("x-last-id", reply.headers.get("x-last-id"), _lines(reply)[-1]["id"])
        if reply.headers.get("x-has-more") == "false":
            break
        reply = _results(session, session.completed(), limit=2, after=reply.headers["x-last-id"])
    equal("custom_ids", found, [f"r{n}" for n in range(5)])


@results.check("status=cancelled gives those lines only, status=failed none of them")
def status_filters(session: Session) -> None:
    batch = session.cancelled()
    codes = {(line["error"] or {}).get("code") for line in _lines(_results(session, batch, status="cancelled"))}
    equal("codes", codes, {"batch_cancelled"})
    equal("failed ones", _lines(_results(session, batch, status="failed")), [])


@results.check("400 naming after or status for what they cannot be; 404 for an unknown batch")
def refuse_odd_queries(session: Session) -> None:
    path = offered(session.get(f"/v1/batches/{session.completed()['id']}/results")).request.url.path
    refused(session.get(f"{path}?after=batch_req_0"), 400, param="after")
    refused(session.get(f"{path}?status=odd"), 400, param="status")
    refused(session.get(f"/v1/batches/{NO_BATCH}/results"), 404)


@requests.check(
    "one request by its custom_id: {id, custom_id, status, attempts, model, result}, result the stored line"
)
def tell_of_one(session: Session) -> None:
    batch = session.completed()
    found = ok(offered(session.get(f"/v1/batches/{batch['id']}/requests/r3")))
    members(found, REQUEST, "request")
    equal("custom_id and status", (found["custom_id"], found["status"]), ("r3", "succeeded"))
    holds(found["attempts"] >= 1, f"attempts is {found['attempts']!r}")
    equal("result", found["result"], next(line for line in session.output(batch) if line["custom_id"] == "r3"))


@requests.check("404 naming custom_id for one the batch does not have")
def unknown_is_404(session: Session) -> None:
    path = f"/v1/batches/{session.completed()['id']}/requests"
    offered(session.get(f"{path}/r0"))
    refused(session.get(f"{path}/r99"), 404, param="custom_id")


def _told(reply: Response) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(id, type, data) of each event of a stream that has ended."""
    for block in reply.text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":") and ": " in line)
        if "data" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])


def _events(session: Session, batch_id: str, **headers: str) -> Response:
    reply = offered(session.get(f"/v1/batches/{batch_id}/events", headers=headers))
    holds(reply.headers["content-type"].startswith("text/event-stream"), told(reply))
    return reply


@events.check("server-sent events of every status from validating to the end, which ends the stream")
def tell_every_status(session: Session) -> None:
    batch_id = ok(session.create(session.lines(3)))["id"]
    kinds = [kind for _, kind, _ in _told(_events(session, batch_id)) if kind != "batch.progress"]
    equal("events", kinds, [f"batch.{word}" for word in ("validating", "in_progress", "finalizing", "completed")])


@events.check(
    "each carries the batch as it is: {object: event, type, created_at, data: {id, status, request_counts, …}}"
)
def carry_the_batch(session: Session) -> None:
    batch = session.completed()
    for _, kind, event in _told(_events(session, batch["id"])):
        equal("object and type", (event["object"], event["type"]), ("event", kind))
        members(event["data"], ("id", "status", "request_counts", "output_file_id", "error_file_id", "usage"), "data")
        equal("id", event["data"]["id"], batch["id"])


@events.check("Last-Event-ID goes on behind that event; 204 for a reader that has seen the end")
def resume(session: Session) -> None:
    batch_id = session.completed()["id"]
    known = list(_told(_events(session, batch_id)))
    holds(len(known) >= 2, f"{len(known)} events")
    for n, (event_id, _, _) in enumerate(known[:-1]):
        rest = [kind for _, kind, _ in _told(_events(session, batch_id, **{"last-event-id": event_id}))]
        equal("the rest", rest, [kind for _, kind, _ in known[n + 1 :]])
    reply = session.get(f"/v1/batches/{batch_id}/events", headers={"last-event-id": known[-1][0]})
    equal("status", reply.status_code, 204)


@events.check("404 with the envelope for an unknown batch")
def of_an_unknown_batch(session: Session) -> None:
    offered(session.get(f"/v1/batches/{session.completed()['id']}/events"))
    refused(session.get(f"/v1/batches/{NO_BATCH}/events"), 404)
