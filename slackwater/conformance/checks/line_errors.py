"""Each fault that a batch file can have: the batch fails, and `errors.data` says where and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from slackwater.conformance.expect import Mismatch, equal, holds, ok
from slackwater.conformance.registry import Group, Test
from slackwater.conformance.session import Session, jsonl

lines = Group("batches.errors", "1.7")
ours = Group("batches.errors", "8")
MANY: Final = 130

Make = Callable[[Session], bytes]


def _errors(session: Session, data: bytes) -> list[dict[str, Any]]:
    batch = session.run(data)
    if batch["status"] != "failed":
        raise Mismatch(f"ended as {batch['status']}")
    session.answered.append(json.dumps(batch["errors"])[:300])
    return list(batch["errors"]["data"])


def _fault(make: Make, code: str, param: str | None = "*", says: str = "", line: int | None = 2) -> Test:
    """The fault is in line 2, behind a good one."""

    def test(session: Session) -> None:
        errors = _errors(session, session.lines(1) + make(session))
        equal("number of errors", len(errors), 1)
        error = errors[0]
        equal("code", error["code"], code)
        equal("line", error["line"], line)
        if param != "*":
            equal("param", error["param"], param)
        holds(says in error["message"], f"the message is {error['message']!r}")

    return test


def _without(name: str) -> Make:
    return lambda session: jsonl([{k: v for k, v in session.line("b").items() if k != name}])


def _body(**members: Any) -> Make:
    def make(session: Session) -> bytes:
        line = session.line("b")
        body = {k: v for k, v in (line["body"] | members).items() if v is not None}
        return jsonl([line | {"body": body}])

    return make


lines.add(
    "invalid_json_line",
    "invalid_json_line, `This line is not parseable as valid JSON.`",
    _fault(lambda _: b'{"custom_id": \n', "invalid_json_line", None, "This line is not parseable as valid JSON."),
)
for _name in ("custom_id", "method", "url", "body"):
    lines.add(
        f"missing_{_name}",
        f"missing_required_parameter, param {_name}, `Missing required parameter: '{_name}'.`",
        _fault(_without(_name), "missing_required_parameter", _name, f"Missing required parameter: '{_name}'."),
    )
lines.add(
    "another_url",
    "invalid_url, param url, `The URL provided for this request does not match the batch endpoint.`",
    _fault(
        lambda session: jsonl([session.line("b", url="/v1/embeddings")]),
        "invalid_url",
        "url",
        "The URL provided for this request does not match the batch endpoint.",
    ),
)
ours.add(
    "another_method",
    "invalid_method, param method",
    _fault(lambda session: jsonl([session.line("b", method="GET")]), "invalid_method", "method"),
)
lines.add(
    "stream_true",
    "streaming_unsupported, param body.stream",
    _fault(
        _body(stream=True),
        "streaming_unsupported",
        "body.stream",
        "Streaming is not supported in the Batch API.",
    ),
)
lines.add(
    "unknown_model",
    "model_not_found, param body.model, `The provided model '…' is not supported by the Batch API.`",
    _fault(_body(model="no-such-model"), "model_not_found", "body.model", "is not supported by the Batch API."),
)
lines.add(
    "no_model",
    "invalid_request, param body.model, `Model parameter is required.`",
    _fault(_body(model=None), "invalid_request", "body.model", "Model parameter is required."),
)
lines.add(
    "no_messages",
    "invalid_request, param body.messages, `Messages parameter is required.`",
    _fault(_body(messages=None), "invalid_request", "body.messages", "Messages parameter is required."),
)
lines.add(
    "duplicate_custom_id",
    "duplicate_custom_id",
    _fault(lambda session: jsonl([session.line("r0")]), "duplicate_custom_id"),
)
ours.add(
    "duplicate_key",
    "duplicate_key: a line with one key twice is refused, not the last taken",
    _fault(
        lambda session: session.lines(1).replace(b'"r0"', b'"b"').replace(b'"url"', b'"method": "POST", "url"'),
        "duplicate_key",
    ),
)
ours.add(
    "lone_surrogate",
    "invalid_unicode",
    _fault(lambda session: jsonl([session.line("b", text="\ud800")]), "invalid_unicode"),
)
ours.add(
    "invalid_utf8",
    "invalid_unicode",
    _fault(lambda session: session.lines(1).replace(b'"r0"', b'"b"').replace(b"Say hi", b"\xff"), "invalid_unicode"),
)
ours.add(
    "nan",
    "a line error for NaN, which is not JSON",
    _fault(lambda session: session.lines(1).replace(b'"r0"', b'"b"').replace(b": 8", b": NaN"), "invalid_json_line"),
)
ours.add(
    "deep_nesting",
    "too_deep",
    _fault(
        lambda session: session.lines(1).replace(b'"r0"', b'"b"').replace(b": 8", b": " + b"[" * 900 + b"]" * 900),
        "too_deep",
    ),
)


@lines.check("every bad line is reported, one error for each")
def all_bad_lines_are_reported(session: Session) -> None:
    line = session.line("b")
    bad = [{k: v for k, v in line.items() if k != name} for name in ("custom_id", "method", "url", "body")]
    errors = _errors(session, jsonl(bad))
    equal("lines", [error["line"] for error in errors], [1, 2, 3, 4])


@ours.check(f"{MANY} bad lines: the first hundred, and how many more there are")
def many_errors_are_capped(session: Session) -> None:
    errors = _errors(session, b"no\n" * MANY)
    holds(100 <= len(errors) <= 101, f"{len(errors)} errors are listed")
    holds(len(errors) == 100 or str(MANY - 100) in errors[-1]["message"], f"the last one is {errors[-1]}")


@ours.check("blank lines count for line numbers, and not as requests")
def line_numbers_count_blank_lines(session: Session) -> None:
    equal("line", _errors(session, b"\n\n\nno JSON\n")[0]["line"], 4)


@lines.check("400 at the upload, or failed with empty_file")
def empty_file(session: Session) -> None:
    _empty(session, b"")


@lines.check("400 at the upload, or failed with empty_file, for blank lines only")
def blank_file(session: Session) -> None:
    _empty(session, b"\n  \r\n\n")


def _empty(session: Session, data: bytes) -> None:
    upload = session.upload(data)
    if upload.status_code == 400:
        return
    batch = session.final(ok(session.create(input_file_id=ok(upload)["id"]))["id"])
    equal("status", batch["status"], "failed")
    equal("code", batch["errors"]["data"][0]["code"], "empty_file")
