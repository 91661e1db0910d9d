"""Files beyond a plain download: validators, ranges, and output that can be read while the batch runs."""

from __future__ import annotations

import json
from typing import Any, Final

from httpx2 import Response

from slackwater.conformance.expect import NotOffered, equal, error_of, holds, ok, told
from slackwater.conformance.registry import Group
from slackwater.conformance.session import FINAL, Session

etags = Group("ext.etag", "8")
ranges = Group("ext.range", "8")
partial = Group("ext.partial_output", "8")
DATA: Final = b'{"a":1}\n{"b": 1.50, "c": "\xc3\xa9"}\nno newline at the end'
KEPT: Final = {"etag", "accept-ranges", "content-range"}


def _tag(session: Session, file_id: str) -> str:
    reply = session.content(file_id)
    if "etag" not in reply.headers:
        raise NotOffered(f"no etag: {reply.request.url.path}")
    return str(reply.headers["etag"])


def _part(session: Session, file_id: str, wanted: str, **headers: str) -> Response:
    reply = session.content(file_id, range=wanted, **headers)
    if reply.status_code == 200 and "content-range" not in reply.headers:
        raise NotOffered(f"the range is ignored: {told(reply)}")
    return reply


def _output(session: Session) -> str:
    return str(session.completed()["output_file_id"])


@etags.check("the bytes of a file have an ETag, and 304 answers it")
def of_an_input(session: Session) -> None:
    file_id = session.file_of(DATA)
    reply = session.content(file_id, **{"if-none-match": _tag(session, file_id)})
    equal("status and bytes", (reply.status_code, reply.content), (304, b""))


@etags.check("the same for the output of a final batch, the same tag each time")
def of_an_output(session: Session) -> None:
    tag = _tag(session, _output(session))
    equal("etag", _tag(session, _output(session)), tag)
    equal("status", session.content(_output(session), **{"if-none-match": tag}).status_code, 304)
    equal("status", session.content(_output(session), **{"if-none-match": '"other"'}).status_code, 200)


@ranges.check("206 with Content-Range for bytes=2-5")
def of_an_input_file(session: Session) -> None:
    reply = _part(session, session.file_of(DATA), "bytes=2-5")
    equal("status", reply.status_code, 206)
    equal("content-range", reply.headers.get("content-range"), f"bytes 2-5/{len(DATA)}")
    equal("the part", reply.content, DATA[2:6])


@ranges.check("206 for a suffix, bytes=-4")
def of_a_suffix(session: Session) -> None:
    reply = _part(session, session.file_of(DATA), "bytes=-4")
    equal("status", reply.status_code, 206)
    equal("the part", reply.content, DATA[-4:])


@ranges.check("416 with Content-Range bytes */size for a range beyond the end")
def beyond_the_end_is_416(session: Session) -> None:
    reply = _part(session, session.file_of(DATA), f"bytes={len(DATA)}-")
    equal("status", reply.status_code, 416)
    error_of(reply)
    equal("content-range", reply.headers.get("content-range"), f"bytes */{len(DATA)}")


@ranges.check("every range of an output file, once the batch is final, is that part of the whole")
def of_a_final_output(session: Session) -> None:
    whole = session.content(_output(session)).content
    for start, stop in ((0, 1), (10, 20), (len(whole) // 2, len(whole)), (0, len(whole))):
        reply = _part(session, _output(session), f"bytes={start}-{stop - 1}")
        equal("status", reply.status_code, 206)
        equal("content-range", reply.headers.get("content-range"), f"bytes {start}-{stop - 1}/{len(whole)}")
        equal("the part", reply.content, whole[start:stop])


@ranges.check("If-Range: the part for the tag of the file, the whole for another")
def if_range_holds(session: Session) -> None:
    tag = _tag(session, _output(session))
    equal("status", _part(session, _output(session), "bytes=0-3", **{"if-range": tag}).status_code, 206)
    equal("status", session.content(_output(session), range="bytes=0-3", **{"if-range": '"other"'}).status_code, 200)


@partial.check(
    "output_file_id appears with the first line, while in_progress; the file is whole lines, and nothing may be kept of it"
)
def is_readable_while_in_progress(session: Session) -> None:
    batch, reply = _growing(session)
    equal("status", reply.status_code, 200)
    holds(not KEPT & set(reply.headers), f"a file that grows has {sorted(KEPT & set(reply.headers))}")
    equal("cache-control", reply.headers.get("cache-control"), "no-store")
    holds(reply.content.endswith(b"\n"), "the last line is not whole")
    ids = [json.loads(line)["custom_id"] for line in reply.content.splitlines()]
    holds(ids and len(set(ids)) == len(ids), f"{len(ids)} lines, {len(set(ids))} custom_ids")
    ended = session.final(batch["id"])
    equal("output_file_id", ended["output_file_id"], batch["output_file_id"])
    known = {line["custom_id"] for line in session.output(ended)}
    holds(known >= set(ids), "a line that was there is gone")


def _growing(session: Session) -> tuple[dict[str, Any], Response]:
    """A batch that ran while its output was read, and what was read; it is cancelled then."""
    batch_id = ok(session.create(input_file_id=session.many()))["id"]
    seen = session.until(batch_id, lambda batch: batch["request_counts"]["completed"] or batch["status"] in FINAL)
    holds(seen["status"] == "in_progress", f"{seen['request_counts']} is done too soon to be read: {seen['status']}")
    if not seen["output_file_id"]:
        session.post(f"/v1/batches/{batch_id}/cancel")
        raise NotOffered("no output file while lines are completed")
    reply = session.content(seen["output_file_id"])
    ok(session.post(f"/v1/batches/{batch_id}/cancel"))
    return seen, reply
