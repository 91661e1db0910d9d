"""How a stored line becomes the end of a response, and its events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.lifecycle import BatchState
from slackwater.reader.output_line import answer_line, error_line, read_answer
from slackwater.wire.response import ResponseStatus, ending, response_object
from slackwater.wire.response_events import log
from slackwater.wire.response_request import input_items, request_line

AT = datetime(2026, 12, 1, tzinfo=UTC)
ROW: dict[str, Any] = {
    "public_id": "resp_1",
    "created_at": AT,
    "completed_at": AT,
    "completion_window": "24h",
    "metadata": None,
    "response": {"model": "m", "instructions": "Be short."},
}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "No"}],
}  # fmt: skip
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}', "status": "completed"}
THOUGHTS = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Why"}], "content": None}
OTHER = {"id": "ws_1", "type": "web_search_call", "status": "completed"}


def line(body: object, status: int = 200) -> bytes:
    return answer_line("l", "resp_1", None, read_answer(status, json.dumps(body).encode()))


def answer(*output: object, **more: Any) -> dict[str, Any]:
    return {"id": "resp-theirs", "object": "response", "status": "completed", "output": list(output)} | more


@pytest.mark.parametrize(
    ("body", "status", "ends", "code"),
    [
        (answer(MESSAGE), 200, "completed", None),
        (answer(MESSAGE, status="incomplete", incomplete_details={"reason": "max_output_tokens"}), 200, "incomplete", None),
        (answer(status="failed", error={"code": "rate_limit_exceeded", "message": "no"}), 200, "failed", "rate_limit_exceeded"),
        (answer(status="failed"), 200, "failed", "server_error"),
        (answer(status="in_progress"), 200, "failed", "server_error"),
        ({"object": "chat.completion", "choices": []}, 200, "failed", "server_error"),
        ({"object": "response", "output": "text"}, 200, "failed", "server_error"),
        ([], 200, "failed", "server_error"),
        ({"error": {"message": "Too long."}}, 400, "failed", "invalid_prompt"),
        ({"error": "gone"}, 404, "failed", "invalid_prompt"),
        ({}, 429, "failed", "rate_limit_exceeded"),
        (None, 500, "failed", "server_error"),
    ],
)  # fmt: skip
def test_what_an_engine_answers_is_the_end(body: object, status: int, ends: str, code: str | None) -> None:
    ended = ending(BatchState.COMPLETED, None, line(body, status))

    assert ended is not None
    assert (ended.status, ended.error["code"] if ended.error else None, ended.has_run) == (ends, code, True)
    if code is not None:
        assert ended.error
        assert ended.error["message"]


@pytest.mark.parametrize("state", list(BatchState))
def test_a_state_without_an_answer(state: BatchState) -> None:
    errors = {"data": [{"message": "refused"}]}
    given_up = error_line("l", "resp_1", "engine_crash", "The engine died.")
    ended = ending(state, errors, given_up)

    cancelled = state in (BatchState.CANCELLING, BatchState.CANCELLED)
    failed = state in (BatchState.COMPLETED, BatchState.FAILED, BatchState.EXPIRED)
    assert (ended.status if ended else None) == ("cancelled" if cancelled else "failed" if failed else None)
    assert ended is None or not ended.has_run


def test_the_object_is_the_engines_with_our_names() -> None:
    ended = ending(BatchState.COMPLETED, None, line(answer(MESSAGE, CALL, usage={"total_tokens": 3}, created_at=1.5)))
    shown = response_object(ROW, ended, is_running=False)

    assert (shown["id"], shown["status"], shown["background"]) == ("resp_1", "completed", True)
    assert (shown["created_at"], shown["completed_at"]) == (int(AT.timestamp()), int(AT.timestamp()))
    assert (shown["output"], shown["usage"]) == ([MESSAGE, CALL | {"id": "item_1"}], {"total_tokens": 3})
    assert (shown["instructions"], shown["tools"], shown["store"]) == ("Be short.", [], True)


def types(*output: object, status: str = "completed") -> list[str]:
    ended = ending(BatchState.COMPLETED, None, line(answer(*output, status=status)))
    events = log(ROW, ended, is_running=False)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return [event["type"].removeprefix("response.") for event in events[3:-1]]


def test_every_kind_of_output_has_its_events() -> None:
    text = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
    refusal = ["content_part.added", "refusal.delta", "refusal.done", "content_part.done"]
    summary = "reasoning_summary"
    thoughts = [f"{summary}_part.added", f"{summary}_text.delta", f"{summary}_text.done", f"{summary}_part.done"]
    item = ("output_item.added", "output_item.done")
    assert types(MESSAGE) == [item[0], *text, *refusal, item[1]]
    assert types(CALL) == [item[0], "function_call_arguments.delta", "function_call_arguments.done", item[1]]
    assert types(THOUGHTS) == [item[0], *thoughts, item[1]]
    assert types(OTHER, status="incomplete") == list(item)
    assert types(7) == []


def test_a_log_only_grows_and_ends_once() -> None:
    queued, running = (log(ROW, None, is_running=state) for state in (False, True))
    done = log(ROW, ending(BatchState.COMPLETED, None, line(answer(MESSAGE))), is_running=False)
    cancelled = log(ROW, ending(BatchState.CANCELLED, None, None), is_running=False)

    assert running[:2] == queued
    assert done[:3] == running
    assert [event["sequence_number"] for event in cancelled] == [0, 1, 3]
    assert (cancelled[:2], cancelled[-1]["type"]) == (queued, "error")
    assert done[-1]["response"]["status"] == ResponseStatus.COMPLETED


NAMES = ["type", "content", "text", "summary", "id", "arguments", "x"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "reasoning", "output_text"])}, optional={"content": JSON, "summary": JSON, "id": JSON}
)  # fmt: skip


@given(st.lists(JSON | ITEM, max_size=4))
def test_no_answer_of_an_engine_breaks_the_log(output: list[Any]) -> None:
    ended = ending(BatchState.COMPLETED, None, line(answer(*output)))

    assert log(ROW, ended, is_running=False)[-1]["type"] == "response.completed"


@given(JSON | st.lists(JSON | ITEM))
def test_every_input_can_be_listed(asked: Any) -> None:
    if not isinstance(asked, str | list):
        return
    items = input_items(request_line("resp_1", json.dumps({"input": asked}).encode()), 7)

    assert all(isinstance(item["id"], str) for item in items)


def test_the_body_stands_in_its_line_as_it_was_written() -> None:
    written = b' {"input" :\n"a\\n\\u00e9",\r\n"t":1.0}\n'

    assert request_line("resp_1", written) == (
        b'{"custom_id":"resp_1","method":"POST","url":"/v1/responses","body":{"input" :\r"a\\n\\u00e9",\r\r"t":1.0}}'
    )
