"""What a create may ask for beyond OpenAI's members, and what the batch then says."""

from __future__ import annotations

import json
from typing import Any, Final

from slackwater.conformance.expect import NotOffered, equal, holds, members, ok, refused, taken
from slackwater.conformance.registry import Group, Test
from slackwater.conformance.session import NO_FILE, Session, jsonl

ext = Group("ext", "8")
inline = Group("ext.inline", "8")
WINDOWS: Final = {"1s": 1, "90s": 90, "30m": 1_800, "7d": 604_800, "30d": 2_592_000}
MARKS: Final = {"order": "4711", "shop": "Gärtner"}


def _window(window: str, seconds: int) -> Test:
    def test(session: Session) -> None:
        batch = taken(session.create(input_file_id=NO_FILE, completion_window=window), "completion_window")
        equal("completion_window", batch["completion_window"], window)
        equal("expires_at - created_at", batch["expires_at"] - batch["created_at"], seconds)

    return test


for _text, _seconds in WINDOWS.items():
    ext.add(f"window.takes_{_text}", "200; expires_at follows the window", _window(_text, _seconds))


@ext.check("400 naming completion_window for 0s, 31d, 24H and other digits than ASCII's")
def window_has_bounds(session: Session) -> None:
    taken(session.create(input_file_id=NO_FILE, completion_window="36h"), "completion_window")
    for window in ("0s", "31d", "24H", "١h"):
        refused(session.create(input_file_id=NO_FILE, completion_window=window), 400, param="completion_window")


@ext.check("priority is kept, and out of -100 to 100 refused")
def priority(session: Session) -> None:
    equal("priority", taken(session.create(input_file_id=NO_FILE, priority=7), "priority")["priority"], 7)
    refused(session.create(input_file_id=NO_FILE, priority=101), 400, param="priority")


@ext.check("request_counts beyond three: queued, processing, expired, cancelled")
def more_counts(session: Session) -> None:
    counts = session.completed()["request_counts"]
    if "queued" not in counts:
        raise NotOffered(f"request_counts is {counts}")
    members(counts, ("queued", "processing", "expired", "cancelled"), "request_counts")


@ext.check("a batch says what it cost, why it waits and when it may be done")
def cost_and_waiting_reason(session: Session) -> None:
    batch = taken(session.create(), "waiting_reason")
    members(batch, ("cost", "waiting_reason", "estimated_completion_at"), "batch")


@ext.check("on_invalid: skip runs the good lines and puts the bad ones into the error file")
def on_invalid_skip(session: Session) -> None:
    made = taken(session.create(session.lines(2) + b"no JSON\n", on_invalid="skip"), "on_invalid")
    batch = session.final(made["id"])
    equal("status", batch["status"], "completed")
    equal("good lines", len(session.output(batch)), 2)
    equal("bad lines", len(session.output(batch, "error_file_id")), 1)


@ext.check("a webhook of the batch's own shows its secret in the reply to the create, and in no other object")
def webhook_of_a_batch(session: Session) -> None:
    batch = taken(session.create(input_file_id=NO_FILE, webhook={"url": "https://example.com/hook"}), "webhook")
    holds(batch["webhook"]["signing_secret"].startswith("whsec_"), "the secret is not a whsec_ one")
    holds("signing_secret" not in str(session.batch(batch["id"])), "the secret is shown again")


@ext.check("webhook_metadata is kept, and refused beyond the limits of metadata")
def webhook_metadata(session: Session) -> None:
    made = taken(session.create(input_file_id=NO_FILE, webhook_metadata=MARKS), "webhook_metadata")
    for shown in (made, session.batch(made["id"])):
        equal("webhook_metadata", shown["webhook_metadata"], MARKS)
    many = {str(n): "v" for n in range(17)}
    refused(session.create(input_file_id=NO_FILE, webhook_metadata=many), 400, param="webhook_metadata")


@ext.check("output_order: completion has every line once; input is the default; 400 for another order")
def output_order(session: Session) -> None:
    made = taken(session.create(session.lines(40), output_order="completion"), "output_order")
    found = [line["custom_id"] for line in session.output(session.final(made["id"]))]
    equal("custom_ids", sorted(found), sorted(f"r{n}" for n in range(40)))
    equal("output_order", session.completed()["output_order"], "input")
    refused(session.create(input_file_id=NO_FILE, output_order="random"), 400, param="output_order")


@ext.check("without output_order, the lines of the output file stand in the order of the input")
def output_in_input_order(session: Session) -> None:
    taken(session.create(input_file_id=NO_FILE, output_order="input"), "output_order")
    equal("custom_ids", [line["custom_id"] for line in session.output(session.completed())], _names(5))


@ext.check("lines of other kinds run: completions and responses")
def other_endpoints(session: Session) -> None:
    bodies: dict[str, dict[str, object]] = {
        "/v1/completions": {"prompt": "Say hi.", "max_tokens": 4},
        "/v1/responses": {"input": "Say hi."},
    }
    for endpoint, body in bodies.items():
        line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": body | {"model": session.model}}
        batch = session.final(taken(session.create(jsonl([line]), endpoint=endpoint), "endpoint")["id"])
        holds(batch["status"] == "completed", f"{endpoint}: {batch['status']} {batch['errors']}")


@inline.check("requests in the body run as the lines of a file would, and input_file_id names that file")
def runs(session: Session) -> None:
    lines = [session.line(name) for name in _names(3)]
    reply = session.create(input_file_id=None, requests=lines)
    batch = session.final(taken(reply, "requests", "input_file_id", shown=False)["id"])
    equal("status", batch["status"], "completed")
    equal("custom_ids", sorted(line["custom_id"] for line in session.output(batch)), _names(3))
    stored = session.content(batch["input_file_id"]).content.splitlines()
    equal("the stored lines", [json.loads(line) for line in stored], lines)


@inline.check("a fault inside of one is told on the batch, by the number of the request")
def faults_have_their_line(session: Session) -> None:
    reply = session.create(input_file_id=None, requests=[session.line("a"), session.line("b", url="/v1/embeddings")])
    batch = session.final(taken(reply, "requests", "input_file_id", shown=False)["id"])
    error = batch["errors"]["data"][0]
    equal("code and line", (error["code"], error["line"]), ("invalid_url", 2))


@inline.check("400 naming requests for both, none of them, or what is no array")
def must_be_the_only_input(session: Session) -> None:
    reply = session.create(input_file_id=None, requests=[session.line("a")])
    taken(reply, "requests", "input_file_id", shown=False)
    refused(session.create(input_file_id=NO_FILE, requests=[session.line("a")]), 400, param="requests")
    empty: tuple[Any, ...] = ([], {}, "x")
    for requests in empty:
        refused(session.create(input_file_id=None, requests=requests), 400, param="requests")


@ext.check("400 naming a member that is none: a misspelt one would be lost in silence")
def unknown_member_is_refused(session: Session) -> None:
    ok(session.create(input_file_id=NO_FILE))
    reply = session.create(input_file_id=NO_FILE, no_such_member=1)
    if reply.status_code == 200:
        raise NotOffered("unknown members are ignored")
    refused(reply, 400, param="no_such_member", code="unknown_parameter")


def _names(count: int) -> list[str]:
    return [f"r{n}" for n in range(count)]
