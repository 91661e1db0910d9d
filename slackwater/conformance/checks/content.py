"""The bytes of files: exact, and the same each time."""

from __future__ import annotations

from typing import Final

from slackwater.conformance.expect import equal, holds, ok, refused, told
from slackwater.conformance.registry import Group
from slackwater.conformance.session import NO_FILE, Session

content = Group("files.content", "8")
DATA: Final = b'{"a":1}\r\n\n  {"b": 1.50, "c": "\\u00e9 \xc3\xa9 \xe2\x80\xa8"}\nno newline at the end'


@content.check("200 with the bytes that were uploaded, every one", section="1.1")
def is_byte_exact(session: Session) -> None:
    reply = session.content(session.file_of(DATA), accept="application/binary")
    holds(reply.status_code == 200, told(reply))
    holds(reply.content == DATA, "other bytes came back than were sent")


@content.check("bytes that are no text are kept as they are", section="1.1")
def keeps_any_bytes(session: Session) -> None:
    data = bytes(range(256)) * 40
    holds(session.content(session.file_of(data)).content == data, "other bytes came back than were sent")


@content.check("404 with the envelope for an unknown id", section="1.2")
def unknown_is_404(session: Session) -> None:
    refused(session.content(NO_FILE), 404)


@content.check("the bytes of an output file never change once the batch is final")
def output_is_stable(session: Session) -> None:
    file_id = session.completed()["output_file_id"]
    first, second = session.content(file_id), session.content(file_id)
    holds(first.status_code == 200, told(first))
    holds(first.content == second.content, "two readings differ")


@content.check("`bytes` of an output file is the size of its content", section="1.2")
def output_size_is_told(session: Session) -> None:
    file_id = session.completed()["output_file_id"]
    equal("bytes", ok(session.get(f"/v1/files/{file_id}"))["bytes"], len(session.content(file_id).content))


@content.check("an output file has purpose batch_output", section="1.2")
def output_purpose(session: Session) -> None:
    equal("purpose", ok(session.get(f"/v1/files/{session.completed()['output_file_id']}"))["purpose"], "batch_output")


@content.check("a name with quotes and line breaks cannot break out of Content-Disposition", section="1.2")
def names_stay_in_their_header(session: Session) -> None:
    file_id = ok(session.upload(DATA, name='a"; b=c\\é.jsonl'))["id"]
    reply = session.content(file_id)
    holds(reply.status_code == 200 and "b" not in reply.headers, told(reply))
