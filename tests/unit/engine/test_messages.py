"""Messages become what the chat template can render, or are refused by name."""

from typing import Any

import pytest

from workers.engine.answer import RefusedError
from workers.engine.messages import read_messages

USER = {"role": "user", "content": "x"}


def call(arguments: object, *, name: object = "read_file", call_id: object = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def replay(arguments: object) -> list[dict[str, Any]]:
    return [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call(arguments)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "partial"},
    ]


def refused_param(messages: object) -> str | None:
    with pytest.raises(RefusedError) as caught:
        read_messages(messages)
    assert caught.value.status == 400
    return caught.value.param


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_a_text_message_keeps_its_role_and_text(role: str) -> None:
    assert read_messages([{"role": role, "content": "a\x00b"}]) == ({"role": role, "content": "a\x00b"},)


def test_developer_is_the_templates_system() -> None:
    assert read_messages([{"role": "developer", "content": "s"}]) == ({"role": "system", "content": "s"},)


def test_two_users_in_a_row_are_two_messages() -> None:
    assert len(read_messages([USER, USER])) == 2


def test_text_parts_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    assert read_messages([{"role": "user", "content": parts}])[0]["content"] == "a\nb"


def test_a_replayed_call_is_rendered_and_its_reply_follows() -> None:
    _, said, reply = read_messages(replay('{"path": "src/a"}'))

    assert said["content"] == ('<tool_call>\n{"name": "read_file", "arguments": {"path": "src/a"}}\n</tool_call>')
    assert reply == {"role": "tool", "content": "partial"}


def test_empty_arguments_read_as_an_empty_object() -> None:
    assert read_messages(replay("")) == read_messages(replay("{}"))


@pytest.mark.parametrize("arguments", ['{"path": "src/a', "[]", "3", None, {}, "[" * 100_000])
def test_broken_arguments_are_named(arguments: object) -> None:
    assert refused_param(replay(arguments)) == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "assistant", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([USER, {"role": "user", "content": [{"type": "image_url"}]}], "messages[1].content[0].type"),
        ([{"role": "user", "content": "x", "name": "bob"}], "messages[0].name"),
        ([USER, {"role": "tool", "tool_call_id": "call_9", "content": "42"}], "messages[1].tool_call_id"),
        ([{"role": "user", "content": "x", "tool_call_id": "a"}], "messages[0].tool_call_id"),
        ([{"role": "user", "content": "x", "tool_calls": [call("{}")]}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": [call("{}", call_id=1)]}], "messages[0].tool_calls[0]"),
        (
            [{"role": "assistant", "tool_calls": [call("{}", name=None)]}],
            "messages[0].tool_calls[0].function.name",
        ),
    ],
)
def test_what_the_template_cannot_render_is_refused_by_name(messages: object, param: str) -> None:
    assert refused_param(messages) == param


def test_a_reply_must_follow_the_call_that_it_answers() -> None:
    said, called, reply = replay("{}")

    assert refused_param([said, reply, called]) == "messages[1].tool_call_id"


def test_an_assistants_own_empty_members_may_be_replayed() -> None:
    message: dict[str, object] = {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "annotations": [],
        "tool_calls": [],
    }

    assert read_messages([message]) == ({"role": "assistant", "content": "a"},)
