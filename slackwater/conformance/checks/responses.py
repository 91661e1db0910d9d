"""Responses in the background: made, polled, streamed, cancelled, deleted. A server without them is told so, and fails nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from httpx2 import Response

from slackwater.conformance.expect import equal, holds, members, offered, ok, refused, taken
from slackwater.conformance.registry import OPTIONAL, Group
from slackwater.conformance.session import POLL_SECONDS, Session

PATH: Final = "/v1/responses"
NO_RESPONSE: Final = "resp_" + "0" * 32
ENDED: Final = ("completed", "failed", "cancelled", "incomplete")
MEMBERS: Final = (
    "id", "object", "created_at", "status", "background", "error", "incomplete_details", "instructions", "metadata", "model",
    "output", "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "usage",
)  # fmt: skip

responses = Group(OPTIONAL[1].removesuffix("."), "3")


def begin(session: Session, **more: object) -> dict[str, Any]:
    """A new response; a server that has no such route, or refuses `background` by its name, does not offer it."""
    reply = session.post(PATH, {"model": session.model, "input": "Say hi.", "background": True} | more)
    return taken(offered(reply) if reply.status_code != 400 else reply, "background")


def ended(session: Session, response_id: str) -> dict[str, Any]:
    """The response once it has ended."""
    ends = time.monotonic() + session.shared.wait_seconds
    while (found := ok(session.get(f"{PATH}/{response_id}")))["status"] not in ENDED:
        holds(time.monotonic() < ends, f"still {found['status']} after {session.shared.wait_seconds:g} s")
        time.sleep(POLL_SECONDS)
    return found


def completed(session: Session) -> Mapping[str, Any]:
    """A completed response, the same for all checks that do not change it."""
    made: dict[str, Any] = session.shared.once("response", lambda: ended(session, begin(session)["id"]))
    equal("status", made["status"], "completed")
    return made


def events(reply: Response) -> list[dict[str, Any]]:
    """The events of a whole stream; each is named as its data says."""
    equal("content-type", reply.headers.get("content-type", "").partition(";")[0], "text/event-stream")
    told = []
    for block in reply.text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.split("\n") if not line.startswith(":"))
        if "data" in fields:
            event = json.loads(fields["data"])
            equal("the name of an event", fields.get("event", event["type"]), event["type"])
            told.append(event)
    return told


def log(session: Session, **query: Any) -> list[dict[str, Any]]:
    reply = session.get(f"{PATH}/{completed(session)['id']}", params={"stream": "true"} | query)
    holds(reply.status_code == 200, session.answered[-1])
    return events(reply)


@responses.check("200 at once: queued or in_progress, background true, no output, no error")
def begins_in_the_background(session: Session) -> None:
    made = begin(session, metadata={"a": "b"}, instructions="Be short.")
    members(made, MEMBERS, "response")
    holds(made["id"].startswith("resp_"), f"the id is {made['id']!r}")
    holds(made["status"] in ("queued", "in_progress"), f"the status is {made['status']!r}")
    for name, wanted in (("object", "response"), ("background", True), ("output", []), ("error", None)):
        equal(name, made[name], wanted)
    equal("metadata", made["metadata"], {"a": "b"})
    equal("instructions", made["instructions"], "Be short.")


@responses.check("polled, it ends as completed, with a message and its usage")
def completes(session: Session) -> None:
    done = completed(session)
    kinds = [item["type"] for item in done["output"]]
    holds("message" in kinds, f"the output holds {kinds}")
    usage = done["usage"]
    equal("total_tokens", usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
    equal("background", done["background"], True)


@responses.check("404 with the envelope for an unknown id")
def unknown_is_404(session: Session) -> None:
    known = completed(session)["id"]
    holds(known != NO_RESPONSE, "it is known")
    refused(session.get(f"{PATH}/{NO_RESPONSE}"), 404)
    refused(session.post(f"{PATH}/{NO_RESPONSE}/cancel"), 404)


@responses.check("cancelled at once; cancelled again it is the same, and stays so")
def cancelling_twice_is_the_same(session: Session) -> None:
    made = begin(session, input="Count to a thousand.", max_output_tokens=2048)
    first, second = (ok(session.post(f"{PATH}/{made['id']}/cancel")) for _ in range(2))
    holds(first["status"] in ENDED, f"the status is {first['status']!r}")
    equal("status", second["status"], first["status"])
    time.sleep(1)
    equal("status", ok(session.get(f"{PATH}/{made['id']}"))["status"], first["status"])


@responses.check("200 with the final object when a completed one is cancelled")
def a_completed_one_stays_completed(session: Session) -> None:
    done = completed(session)
    again = ok(session.post(f"{PATH}/{done['id']}/cancel"))
    for name in ("status", "output", "usage"):
        equal(name, again[name], done[name])


@responses.check("deleted: 404 from then on")
def deletes(session: Session) -> None:
    made = ended(session, begin(session)["id"])
    gone = ok(session.ask("DELETE", f"{PATH}/{made['id']}"))
    equal("deleted", gone.get("deleted"), True)
    refused(session.get(f"{PATH}/{made['id']}"), 404)


@responses.check("its input is a list of items, each with an id")
def lists_its_input(session: Session) -> None:
    listed = ok(session.get(f"{PATH}/{completed(session)['id']}/input_items"))
    members(listed, ("object", "data", "first_id", "last_id", "has_more"), "list")
    (item,) = listed["data"]
    equal("first_id", listed["first_id"], item["id"])
    equal("role", item["role"], "user")


@responses.check("the whole log of a finished one can be streamed: numbered from 0, created first, completed last")
def the_log_is_kept_from_its_beginning(session: Session) -> None:
    told = log(session)
    numbers = [event["sequence_number"] for event in told]
    holds(numbers[0] == 0 and numbers == sorted(set(numbers)), f"the numbers are {numbers}")
    equal("the first event", told[0]["type"], "response.created")
    equal("the last event", told[-1]["type"], "response.completed")
    text = "".join(event["delta"] for event in told if event["type"] == "response.output_text.delta")
    holds(text, "no text was streamed")


@responses.check("`starting_after` leaves out what was seen")
def a_stream_resumes(session: Session) -> None:
    whole = log(session)
    middle = whole[len(whole) // 2]["sequence_number"]
    rest = [event["sequence_number"] for event in log(session, starting_after=middle)]
    equal("the numbers", rest, [n for n in (event["sequence_number"] for event in whole) if n > middle])


@responses.check("a create with `stream` tells the same log as it happens")
def a_create_can_be_streamed(session: Session) -> None:
    completed(session)
    body = {"model": session.model, "input": "Say hi.", "background": True, "stream": True}
    told = events(session.post(PATH, body))
    equal("the first event", told[0]["type"], "response.created")
    equal("the last event", told[-1]["type"], "response.completed")
    equal("its id", told[-1]["response"]["id"], told[0]["response"]["id"])
