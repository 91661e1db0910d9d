"""Envelopes and headers of every reply, and what a client without a right is told."""

from __future__ import annotations

import json

from slackwater.conformance.expect import equal, error_of, holds, members, ok, refused, told
from slackwater.conformance.registry import Group
from slackwater.conformance.session import NO_BATCH, Session

request_id = Group("headers.x_request_id", "1.11")
errors = Group("errors", "1.11")
auth = Group("auth", "1.11")
LONGEST_RETRY_AFTER = 60


@request_id.check("on a success")
def on_success(session: Session) -> None:
    reply = session.get("/v1/models")
    holds(reply.headers.get("x-request-id"), "there is no x-request-id")


@request_id.check("on an error")
def on_error(session: Session) -> None:
    holds(session.get(f"/v1/batches/{NO_BATCH}").headers.get("x-request-id"), "there is no x-request-id")


@request_id.check("on an unknown path")
def on_unknown_path(session: Session) -> None:
    holds(session.get("/v1/no/such/path").headers.get("x-request-id"), "there is no x-request-id")


@request_id.check("on file content")
def on_content(session: Session) -> None:
    reply = session.content(session.file_of(b"{}\n"))
    holds(reply.headers.get("x-request-id"), "there is no x-request-id")


@request_id.check("another one for each request")
def is_unique(session: Session) -> None:
    ids = {session.get("/v1/models").headers.get("x-request-id") for _ in range(3)}
    equal("different ids", len(ids), 3)


@errors.check("{error: {message, type, param, code}} as JSON")
def envelope_is_complete(session: Session) -> None:
    reply = session.get(f"/v1/batches/{NO_BATCH}")
    equal("type", error_of(reply)["type"], "invalid_request_error")
    holds(reply.headers["content-type"].startswith("application/json"), "the error is not typed application/json")


@errors.check("404 with the envelope for an unknown path")
def unknown_path(session: Session) -> None:
    refused(session.get("/v1/no/such/path"), 404)


@errors.check("404 or 405 with the envelope for a method that is not there")
def unknown_method(session: Session) -> None:
    reply = session.ask("PUT", "/v1/batches")
    holds(reply.status_code in (404, 405), told(reply))
    error_of(reply)


@errors.check("400, never a 422 with `detail`, for a wrong query")
def wrong_query_is_400(session: Session) -> None:
    refused(session.get("/v1/batches?limit=x"), 400, param="limit")


@errors.check("a refusal does not repeat what the client sent")
def input_is_not_echoed(session: Session) -> None:
    canary = "canary-2f9c41"
    reply = session.create(input_file_id="file-x", metadata={"a": [canary]})
    refused(reply, 400)
    holds(canary not in reply.text, told(reply))


@errors.check("no 5xx for odd ids, and no success either")
def odd_ids_are_404(session: Session) -> None:
    for odd in ("%2e%2e%2f", "%00", "9" * 5_000, "batch_%F0%9F%98%80", "batch_" + "0" * 31 + "%D9%A0"):
        reply = session.get(f"/v1/batches/{odd}")
        holds(400 <= reply.status_code < 500, told(reply))
        error_of(reply)


@errors.check("Retry-After, where it is sent, is at most 60 seconds", section="1.12")
def retry_after_is_short(session: Session) -> None:
    ok(session.get("/v1/models"))
    for reply in (session.get("/v1/models"), session.get(f"/v1/batches/{NO_BATCH}"), session.get("/readyz")):
        value = reply.headers.get("retry-after", "0")
        holds(value.isdigit() and int(value) <= LONGEST_RETRY_AFTER, f"retry-after is {value!r}")


def _as(session: Session, header: str | None) -> None:
    client = session.shared.client
    request = client.build_request("GET", "/v1/batches")
    del request.headers["authorization"]
    if header is not None:
        request.headers["authorization"] = header
    reply = client.send(request)
    session.answered.append(told(reply))
    equal("status", reply.status_code, 401)
    members(error_of(reply), ("message", "type", "param", "code"), "error")


@auth.check("401 with the envelope and code invalid_api_key for a wrong key")
def wrong_key(session: Session) -> None:
    _as(session, "Bearer sk-wrong")


@auth.check("401 with the envelope without a key")
def no_key(session: Session) -> None:
    _as(session, None)


@auth.check("401 for another scheme")
def another_scheme(session: Session) -> None:
    _as(session, "Basic dTpw")


@auth.check("the SDK's organization and project headers are no fault", section="1.12")
def sdk_headers_pass(session: Session) -> None:
    sent = {"openai-organization": "org-1", "openai-project": "proj_1", "x-stainless-retry-count": "0"}
    ok(session.get("/v1/models", headers=sent | {"x-stainless-read-timeout": "600", "user-agent": "OpenAI/Python 3"}))


@errors.check("a reply that says JSON is JSON in UTF-8")
def json_is_utf8(session: Session) -> None:
    reply = session.create(metadata={"name": "Grüße, 世界 😀"})
    ok(reply)
    equal("metadata", json.loads(reply.content.decode("utf-8"))["metadata"], {"name": "Grüße, 世界 😀"})
