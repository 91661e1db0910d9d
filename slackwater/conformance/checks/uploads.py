"""Uploads in parts."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from httpx2 import Response

from slackwater.conformance.expect import equal, holds, members, ok, refused, told
from slackwater.conformance.registry import Group
from slackwater.conformance.session import Session

uploads = Group("uploads", "1.3")
FIELDS: Final = ("id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status", "file")
PARTS: Final = (b'{"n": 1}\n{"n"', b": 2}\n")
WHOLE: Final = b"".join(PARTS)
NO_UPLOAD: Final = "upload_" + "0" * 32
HOUR: Final = 3_600


def _create(session: Session, **members: Any) -> Response:
    body = {"purpose": "batch", "filename": "in.jsonl", "bytes": len(WHOLE), "mime_type": "application/jsonl"}
    return session.post("/v1/uploads", {k: v for k, v in (body | members).items() if v is not None})


def _part(session: Session, upload_id: str, data: bytes) -> Response:
    return session.ask("POST", f"/v1/uploads/{upload_id}/parts", files={"data": ("upload", data)})


def _filled(session: Session) -> tuple[str, list[str]]:
    """An upload with all its parts, and their ids."""
    upload_id = ok(_create(session))["id"]
    return upload_id, [ok(_part(session, upload_id, part))["id"] for part in PARTS]


def _complete(session: Session, upload_id: str, parts: list[str], **members: Any) -> Response:
    return session.post(f"/v1/uploads/{upload_id}/complete", {"part_ids": parts} | members)


@uploads.check(
    "200 {id: upload_…, object: upload, bytes, created_at, expires_at, filename, purpose, status: pending, file}"
)
def create_is_complete(session: Session) -> None:
    upload = ok(_create(session))
    members(upload, [name for name in FIELDS if name != "file"], "upload")
    equal("object", upload["object"], "upload")
    equal("status", upload["status"], "pending")
    equal("bytes", upload["bytes"], len(WHOLE))
    holds(upload["id"].startswith("upload_"), f"the id is {upload['id']!r}")


@uploads.check("it expires one hour after its creation")
def expires_in_an_hour(session: Session) -> None:
    upload = ok(_create(session))
    equal("expires_at - created_at", upload["expires_at"] - upload["created_at"], HOUR)


@uploads.check("a part is {id, object: upload.part, created_at, upload_id}")
def part_is_complete(session: Session) -> None:
    upload_id = ok(_create(session))["id"]
    part = ok(_part(session, upload_id, PARTS[0]))
    members(part, ("id", "object", "created_at", "upload_id"), "part")
    equal("object", part["object"], "upload.part")
    equal("upload_id", part["upload_id"], upload_id)


@uploads.check("complete: status completed, with the file object, whose content is the parts in the order given")
def completes_to_a_file(session: Session) -> None:
    upload_id, parts = _filled(session)
    upload = ok(_complete(session, upload_id, parts))
    equal("status", upload["status"], "completed")
    equal("file.object", upload["file"]["object"], "file")
    equal("file.bytes", upload["file"]["bytes"], len(WHOLE))
    equal("content", session.content(upload["file"]["id"]).content, WHOLE)


@uploads.check("the order of part_ids rules, not that of the uploads")
def order_is_the_clients(session: Session) -> None:
    upload_id = ok(_create(session))["id"]
    second, first = ok(_part(session, upload_id, PARTS[1]))["id"], ok(_part(session, upload_id, PARTS[0]))["id"]
    upload = ok(_complete(session, upload_id, [first, second]))
    equal("content", session.content(upload["file"]["id"]).content, WHOLE)


@uploads.check("a right md5 passes")
def right_md5(session: Session) -> None:
    upload_id, parts = _filled(session)
    digest = hashlib.md5(WHOLE, usedforsecurity=False).hexdigest()
    equal("status", ok(_complete(session, upload_id, parts, md5=digest))["status"], "completed")


@uploads.check("400 for a wrong md5")
def wrong_md5_is_400(session: Session) -> None:
    upload_id, parts = _filled(session)
    refused(_complete(session, upload_id, parts, md5="0" * 32), 400)


@uploads.check("400 when the bytes are not as many as were announced")
def wrong_size_is_400(session: Session) -> None:
    upload_id, parts = _filled(session)
    refused(_complete(session, upload_id, parts[:1]), 400)


@uploads.check("400 for a part that is not of this upload")
def foreign_part_is_400(session: Session) -> None:
    (mine, _), (_, others) = _filled(session), _filled(session)
    reply = _complete(session, mine, others)
    refused(reply, 404 if reply.status_code == 404 else 400)


@uploads.check("400 naming what is missing")
def missing_members_are_400(session: Session) -> None:
    for name in ("purpose", "filename", "bytes"):
        refused(_create(session, **{name: None}), 400, param=name)


@uploads.check("cancel: status cancelled; parts and complete are refused from then on")
def cancels(session: Session) -> None:
    upload_id, parts = _filled(session)
    equal("status", ok(session.post(f"/v1/uploads/{upload_id}/cancel"))["status"], "cancelled")
    for reply in (_complete(session, upload_id, parts), _part(session, upload_id, PARTS[0])):
        holds(400 <= reply.status_code < 500, told(reply))


@uploads.check("404 for an unknown id on parts, complete and cancel")
def unknown_is_404(session: Session) -> None:
    ok(_create(session))
    refused(_part(session, NO_UPLOAD, b"x"), 404)
    refused(_complete(session, NO_UPLOAD, []), 404)
    refused(session.post(f"/v1/uploads/{NO_UPLOAD}/cancel"), 404)


@uploads.check("a batch runs over a file that came in parts")
def file_serves_a_batch(session: Session) -> None:
    data = session.lines(2)
    upload_id = ok(_create(session, bytes=len(data)))["id"]
    parts = [ok(_part(session, upload_id, piece))["id"] for piece in (data[:50], data[50:])]
    file_id = ok(_complete(session, upload_id, parts))["file"]["id"]
    batch = session.final(ok(session.create(input_file_id=file_id))["id"])
    equal("status", batch["status"], "completed")
