"""What this project adds and old clients ignore; another server need not have any of it."""

from __future__ import annotations

import uuid
from typing import Final

from httpx2 import Response

from slackwater.conformance.expect import equal, holds, members, ok, refused
from slackwater.conformance.registry import Group, Test
from slackwater.conformance.session import CHAT, NO_FILE, Session, jsonl

ext = Group("ext", "8")
retries = Group("ext.idempotency", "8")
WINDOWS: Final = {"1s": 1, "90s": 90, "30m": 1_800, "7d": 604_800, "30d": 2_592_000}


def _window(window: str, seconds: int) -> Test:
    def test(session: Session) -> None:
        batch = ok(session.create(input_file_id=NO_FILE, completion_window=window))
        equal("completion_window", batch["completion_window"], window)
        equal("expires_at - created_at", batch["expires_at"] - batch["created_at"], seconds)

    return test


for _text, _seconds in WINDOWS.items():
    ext.add(f"window.takes_{_text}", "200; expires_at follows the window", _window(_text, _seconds))


@ext.check("400 naming completion_window for 0s and 31d")
def window_has_bounds(session: Session) -> None:
    for window in ("0s", "31d", "24H", "١h"):
        refused(session.create(input_file_id=NO_FILE, completion_window=window), 400, param="completion_window")


@ext.check("priority is kept, and out of -100 to 100 refused")
def priority(session: Session) -> None:
    equal("priority", ok(session.create(input_file_id=NO_FILE, priority=7))["priority"], 7)
    refused(session.create(input_file_id=NO_FILE, priority=101), 400, param="priority")


@ext.check("request_counts beyond three: queued, processing, expired, cancelled")
def more_counts(session: Session) -> None:
    counts = session.completed()["request_counts"]
    members(counts, ("queued", "processing", "expired", "cancelled"), "request_counts")


@ext.check("a batch says what it cost and why it waits")
def cost_and_waiting_reason(session: Session) -> None:
    members(ok(session.create()), ("cost", "waiting_reason"), "batch")


@ext.check("on_invalid: skip runs the good lines and puts the bad ones into the error file")
def on_invalid_skip(session: Session) -> None:
    batch = session.run(session.lines(2) + b"no JSON\n", on_invalid="skip")
    equal("status", batch["status"], "completed")
    equal("good lines", len(session.output(batch)), 2)
    equal("bad lines", len(session.output(batch, "error_file_id")), 1)


@ext.check("a webhook of the batch's own shows its secret once")
def webhook_of_a_batch(session: Session) -> None:
    batch = ok(session.create(input_file_id=NO_FILE, webhook={"url": "https://example.com/hook"}))
    holds(batch["webhook"]["signing_secret"].startswith("whsec_"), "the secret is not a whsec_ one")
    holds("signing_secret" not in str(session.batch(batch["id"])), "the secret is shown again")


@ext.check("the bytes of a file have an ETag, and 304 answers it")
def etag(session: Session) -> None:
    file_id = session.file_of(b"{}\n")
    tag = session.content(file_id).headers["etag"]
    equal("status", session.content(file_id, **{"if-none-match": tag}).status_code, 304)


def _keyed(session: Session, key: str, **members: object) -> Response:
    body = {"input_file_id": NO_FILE, "endpoint": CHAT, "completion_window": "24h"} | members
    return session.post("/v1/batches", body, headers={"idempotency-key": key})


@retries.check("the same key and body: the same batch, marked as a replay")
def same_key_is_the_same_batch(session: Session) -> None:
    key = uuid.uuid4().hex
    first, second = _keyed(session, key), _keyed(session, key)
    equal("id", ok(second)["id"], ok(first)["id"])
    equal("idempotent-replayed", second.headers.get("idempotent-replayed"), "true")


@retries.check("the same key, another body: 409 idempotency_key_reused, not to be retried")
def another_body_is_409(session: Session) -> None:
    key = uuid.uuid4().hex
    ok(_keyed(session, key))
    refused(_keyed(session, key, priority=1), 409, code="idempotency_key_reused")


@retries.check("400 for a key that is none")
def odd_key_is_400(session: Session) -> None:
    refused(_keyed(session, "x" * 300), 400)


@retries.check("POST /v1/files honours the key, too")
def files(session: Session) -> None:
    key = {"idempotency-key": uuid.uuid4().hex}
    first = ok(session.upload(b"{}\n", headers=key))
    equal("id", ok(session.upload(b"{}\n", headers=key))["id"], first["id"])
    refused(session.upload(b"[]\n", headers=key), 409, code="idempotency_key_reused")


@ext.check("lines of other kinds run: completions and responses")
def other_endpoints(session: Session) -> None:
    bodies: dict[str, dict[str, object]] = {
        "/v1/completions": {"prompt": "Say hi.", "max_tokens": 4},
        "/v1/responses": {"input": "Say hi."},
    }
    for endpoint, body in bodies.items():
        line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": body | {"model": session.model}}
        batch = session.run(jsonl([line]), endpoint=endpoint)
        holds(batch["status"] == "completed", f"{endpoint}: {batch['status']} {batch['errors']}")
