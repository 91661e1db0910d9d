"""Creates that are sent again with an `Idempotency-Key`."""

from __future__ import annotations

import uuid
from typing import Any

from httpx2 import Response

from slackwater.conformance.expect import REFUSED, NotOffered, equal, ok, refused
from slackwater.conformance.registry import Group
from slackwater.conformance.session import CHAT, NO_FILE, Session

retries = Group("ext.idempotency", "8")


def _keyed(session: Session, key: str, **members: object) -> Response:
    body = {"input_file_id": NO_FILE, "endpoint": CHAT, "completion_window": "24h"} | members
    return session.post("/v1/batches", body, headers={"idempotency-key": key})


def _repeated(session: Session, path: str, what: dict[str, Any]) -> str:
    """A key under which the same request was made twice, and gave one object."""
    key = uuid.uuid4().hex
    headers = {"idempotency-key": key}
    first, second = (ok(session.ask("POST", path, headers=headers, **what)) for _ in range(2))
    if first["id"] != second["id"]:
        raise NotOffered(f"the key is ignored: two objects, {first['id']} and {second['id']}")
    return key


BATCH = {"json": {"input_file_id": NO_FILE, "endpoint": CHAT, "completion_window": "24h"}}


@retries.check("the same key and body: the same batch, marked as a replay")
def same_key_is_the_same_batch(session: Session) -> None:
    reply = _keyed(session, _repeated(session, "/v1/batches", BATCH))
    equal("idempotent-replayed", reply.headers.get("idempotent-replayed"), "true")


@retries.check("the order of keys and blanks do not make another body")
def canonical_body_counts(session: Session) -> None:
    key = _repeated(session, "/v1/batches", BATCH)
    body = b'{ "completion_window":"24h" , "endpoint":"%s","input_file_id":"%s"}' % (CHAT.encode(), NO_FILE.encode())
    reply = session.post_raw("/v1/batches", body, **{"idempotency-key": key})
    equal("id", ok(reply)["id"], ok(_keyed(session, key))["id"])


@retries.check("the same key, another body: 409 idempotency_key_reused, not to be retried")
def another_body_is_409(session: Session) -> None:
    key = _repeated(session, "/v1/batches", BATCH)
    refused(_keyed(session, key, metadata={"a": "b"}), 409, code="idempotency_key_reused")


@retries.check("400 for a key that is none")
def odd_key_is_400(session: Session) -> None:
    _repeated(session, "/v1/batches", BATCH)
    refused(_keyed(session, "x" * 300), 400)


@retries.check("a key of one kind of object says nothing of another")
def keys_are_by_route(session: Session) -> None:
    key = _repeated(session, "/v1/batches", BATCH)
    equal("object", ok(session.upload(b"{}\n", headers={"idempotency-key": key}))["object"], "file")


@retries.check("POST /v1/files honours the key, too")
def files(session: Session) -> None:
    form = {"data": {"purpose": "batch"}, "files": {"file": ("in.jsonl", b"{}\n", "application/octet-stream")}}
    key = {"idempotency-key": _repeated(session, "/v1/files", form)}
    refused(session.upload(b"[]\n", headers=key), 409, code="idempotency_key_reused")


@retries.check("POST /v1/uploads honours the key, too")
def uploads(session: Session) -> None:
    body = {"purpose": "batch", "filename": "in.jsonl", "bytes": 3, "mime_type": "application/jsonl"}
    key = {"idempotency-key": _repeated(session, "/v1/uploads", {"json": body})}
    refused(session.post("/v1/uploads", body | {"bytes": 4}, headers=key), 409, code="idempotency_key_reused")


@retries.check("POST /v1/responses in the background honours the key, too")
def responses(session: Session) -> None:
    body = {"model": session.model, "input": "Say hi.", "background": True}
    if (reply := session.post("/v1/responses", body)).status_code in REFUSED:
        raise NotOffered(session.answered[-1])
    ok(reply)
    key = {"idempotency-key": _repeated(session, "/v1/responses", {"json": body})}
    refused(session.post("/v1/responses", body | {"input": "Say ho."}, headers=key), 409, code="idempotency_key_reused")
