"""Lines of output files, and that a request's bytes and answer pass through unharmed."""

from __future__ import annotations

import json
from typing import Final

from slackwater.conformance.expect import equal, holds, members, told
from slackwater.conformance.registry import Group
from slackwater.conformance.session import CHAT, Session, jsonl

output = Group("output", "1.8")
read = Group("input", "1.4")
ODD_IDS: Final = ("a b", "ünï", "😀", 'q"uote', "back\\slash", "x" * 64, "0", "line\u2028separator")


@output.check("each custom_id once")
def has_each_request_once(session: Session) -> None:
    ids = [line["custom_id"] for line in session.output(session.completed())]
    equal("custom_ids", sorted(ids), [f"r{n}" for n in range(5)])


@output.check("{id: batch_req_…, custom_id, response: {status_code, request_id, body}, error: null}")
def line_is_complete(session: Session) -> None:
    for line in session.output(session.completed()):
        members(line, ("id", "custom_id", "response", "error"), "line")
        members(line["response"], ("status_code", "request_id", "body"), "response")
        equal("error", line["error"], None)
        holds(line["id"].startswith("batch_req_"), f"the id is {line['id']!r}")
        equal("status_code", line["response"]["status_code"], 200)


@output.check("ids of lines differ")
def ids_differ(session: Session) -> None:
    equal("different ids", len({line["id"] for line in session.output(session.completed())}), 5)


@output.check("the body is the chat completion, with choices and usage", section="2")
def body_is_the_answer(session: Session) -> None:
    for line in session.output(session.completed()):
        members(line["response"]["body"], ("id", "object", "choices", "usage"), "body")


@output.check("every line ends with LF, and U+2028, U+2029 and U+0085 are escaped", section="8")
def lines_stand_alone(session: Session) -> None:
    reply = session.content(session.completed()["output_file_id"])
    holds(reply.status_code == 200 and reply.content.endswith(b"\n"), told(reply))
    equal("lines as text", len(reply.text.splitlines()), reply.content.count(b"\n"))


@output.check("custom_ids of any text come back as they were sent")
def custom_ids_are_kept(session: Session) -> None:
    batch = session.run(jsonl(session.line(custom_id) for custom_id in ODD_IDS))
    ids = {line["custom_id"] for line in session.output(batch)}
    equal("custom_ids", ids, set(ODD_IDS))


def _completes(session: Session, data: bytes, count: int) -> None:
    batch = session.run(data)
    holds(batch["status"] == "completed", f"ended as {batch['status']}: {batch['errors']}")
    equal("total", batch["request_counts"]["total"], count)
    equal("lines", len(session.output(batch)), count)


@read.check("CRLF line ends, blank lines and no newline at the end are no fault", section="8")
def any_line_end(session: Session) -> None:
    first, second = session.lines(2).splitlines()
    _completes(session, first + b"\r\n\r\n\n" + second, 2)


@read.check("a UTF-8 byte order mark in front of line 1 is no fault", section="8")
def takes_a_bom(session: Session) -> None:
    _completes(session, b"\xef\xbb\xbf" + session.lines(2), 2)


@read.check("a file splits on LF only: U+2028 and U+0085 inside of a text are text", section="8")
def splits_on_lf_only(session: Session) -> None:
    line = session.line("a", text="one\u2028two\u0085three\u000bfour")
    _completes(session, json.dumps(line, ensure_ascii=False).encode() + b"\n", 1)


@read.check("a NUL escape in a prompt passes", section="8")
def nul_in_a_prompt(session: Session) -> None:
    _completes(session, jsonl([session.line("a", text="x\0y")]), 1)


@read.check("unknown members of a body are the engine's business, not ours", section="8")
def unknown_body_members_pass(session: Session) -> None:
    line = session.line("a")
    line["body"]["seed"] = 7
    line["body"]["stop"] = ["\n\n"]
    _completes(session, jsonl([line]), 1)


@read.check("members of a line in any order, and others besides")
def members_in_any_order(session: Session) -> None:
    line = session.line("a")
    _completes(session, jsonl([{"body": line["body"], "url": CHAT, "method": "POST", "custom_id": "a"}]), 1)
