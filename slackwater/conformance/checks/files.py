"""Uploading, showing and deleting files."""

from __future__ import annotations

from typing import Final

from slackwater.conformance.expect import equal, error_of, holds, members, ok, refused, told
from slackwater.conformance.registry import Group
from slackwater.conformance.session import NO_FILE, Session

create = Group("files.create", "1.1")
show = Group("files.retrieve", "1.2")
delete = Group("files.delete", "1.2")

LINE: Final = b'{"n": 1}\n'
DAY: Final = 86_400
FIELDS: Final = ("id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status", "status_details")
ANCHOR: Final = "expires_after[anchor]"
SECONDS: Final = "expires_after[seconds]"


@create.check("200 with id file-…, object, bytes, created_at, expires_at, filename, purpose, status", section="1.2")
def object_is_complete(session: Session) -> None:
    file = ok(session.upload(LINE))
    members(file, FIELDS, "file")
    equal("object", file["object"], "file")
    equal("bytes", file["bytes"], len(LINE))
    holds(file["id"].startswith("file-"), f"the id is {file['id']!r}")


@create.check("status `processed` at once: the SDK polls for it every 5 s")
def is_processed_at_once(session: Session) -> None:
    equal("status", ok(session.upload(LINE))["status"], "processed")


@create.check("raw bytes arrive from the SDK as filename `upload`, without .jsonl: accepted")
def takes_bytes_without_a_name(session: Session) -> None:
    equal("filename", ok(session.upload(LINE, name="upload"))["filename"], "upload")


@create.check("the filename of the part is kept")
def keeps_the_filename(session: Session) -> None:
    equal("filename", ok(session.upload(LINE, name="my requests.jsonl"))["filename"], "my requests.jsonl")


@create.check("a part typed application/jsonl (Vercel AI SDK) is accepted")
def takes_another_part_type(session: Session) -> None:
    parts = {"file": ("batch.jsonl", LINE, "application/jsonl")}
    ok(session.ask("POST", "/v1/files", data={"purpose": "batch"}, files=parts))


@create.check("`file` before `purpose` is as good")
def takes_fields_in_any_order(session: Session) -> None:
    boundary = "order"
    body = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n{LINE.decode()}\r\n'
        f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}--\r\n'
    )
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    equal("purpose", ok(session.ask("POST", "/v1/files", content=body.encode(), headers=headers))["purpose"], "batch")


@create.check("bracket fields expires_after[anchor] and [seconds], values as text, set expires_at")
def reads_bracket_fields(session: Session) -> None:
    file = ok(session.upload(LINE, {"purpose": "batch", ANCHOR: "created_at", SECONDS: "3600"}))
    equal("expires_at - created_at", file["expires_at"] - file["created_at"], 3600)


@create.check("a batch input expires after 30 days unless told otherwise", section="1.2")
def batch_inputs_expire_in_thirty_days(session: Session) -> None:
    file = ok(session.upload(LINE))
    equal("expires_at - created_at", file["expires_at"] - file["created_at"], 30 * DAY)


@create.check("a file of another purpose does not expire: expires_at null", section="1.2")
def other_purposes_do_not_expire(session: Session) -> None:
    equal("expires_at", ok(session.upload(LINE, {"purpose": "user_data"}))["expires_at"], None)


def _expiry(seconds: str, anchor: str = "created_at") -> dict[str, str]:
    return {"purpose": "batch", ANCHOR: anchor, SECONDS: seconds}


@create.check("400 for expires_after[seconds] under 3600", section="1.2")
def refuses_a_short_expiry(session: Session) -> None:
    refused(session.upload(LINE, _expiry("3599")), 400)


@create.check("400 for expires_after[seconds] over 2592000", section="1.2")
def refuses_a_long_expiry(session: Session) -> None:
    refused(session.upload(LINE, _expiry("2592001")), 400)


@create.check("400 for an anchor other than created_at", section="1.2")
def refuses_another_anchor(session: Session) -> None:
    refused(session.upload(LINE, _expiry("3600", "last_active_at")), 400)


@create.check("400 naming purpose when it is missing", section="1.2")
def refuses_a_missing_purpose(session: Session) -> None:
    refused(session.upload(LINE, {}), 400, param="purpose")


@create.check("400 naming purpose when there is no such one", section="1.2")
def refuses_an_unknown_purpose(session: Session) -> None:
    refused(session.upload(LINE, {"purpose": "homework"}), 400, param="purpose")


@create.check("400 for purpose batch_output: only the server makes those", section="1.2")
def refuses_the_output_purpose(session: Session) -> None:
    refused(session.upload(LINE, {"purpose": "batch_output"}), 400, param="purpose")


@create.check("400 naming file when there is none", section="1.2")
def refuses_a_missing_file(session: Session) -> None:
    refused(session.ask("POST", "/v1/files", files={"purpose": (None, "batch")}), 400, param="file")


@create.check("400 or 415 with the envelope for a JSON body", section="1.11")
def refuses_json(session: Session) -> None:
    reply = session.post("/v1/files", {"purpose": "batch"})
    holds(reply.status_code in (400, 415), told(reply))
    error_of(reply)


@create.check("400 with the envelope for multipart without its last boundary", section="1.11")
def refuses_a_cut_form(session: Session) -> None:
    body = b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    headers = {"content-type": "multipart/form-data; boundary=x"}
    refused(session.ask("POST", "/v1/files", content=body, headers=headers), 400)


@show.check("200 with the object that the upload answered")
def is_what_was_created(session: Session) -> None:
    created = ok(session.upload(LINE))
    equal("the file", ok(session.get(f"/v1/files/{created['id']}")), created)


@show.check("404 with the envelope for an unknown id")
def unknown_is_404(session: Session) -> None:
    refused(session.get(f"/v1/files/{NO_FILE}"), 404)


@show.check("404 for an id that can be none", section="1.11")
def malformed_is_404(session: Session) -> None:
    refused(session.get("/v1/files/file-%00'%22"), 404)


@delete.check("200 {id, object: file, deleted: true}; a JSON content type without a body is no fault")
def says_deleted(session: Session) -> None:
    file_id = session.file_of(LINE)
    reply = session.ask("DELETE", f"/v1/files/{file_id}", headers={"content-type": "application/json"})
    equal("the reply", ok(reply), {"id": file_id, "object": "file", "deleted": True})


@delete.check("404 at once for object and content of a deleted file", section="8")
def deleted_is_404(session: Session) -> None:
    file_id = session.file_of(LINE)
    ok(session.ask("DELETE", f"/v1/files/{file_id}"))
    refused(session.get(f"/v1/files/{file_id}"), 404)
    refused(session.content(file_id), 404)
    refused(session.ask("DELETE", f"/v1/files/{file_id}"), 404)


@delete.check("404 for an unknown id")
def unknown_cannot_be_deleted(session: Session) -> None:
    refused(session.ask("DELETE", f"/v1/files/{NO_FILE}"), 404)
