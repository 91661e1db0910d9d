"""The wire shape of answers."""

import json

import pytest

from workers.engine.answer import Completion, Endpoint, FinishReason, RefusedError, success
from workers.engine.facade import room

DONE = Completion("a\u2028b", FinishReason.LENGTH, prompt_tokens=3, completion_tokens=4)


def test_a_chat_answer_is_one_line_with_counted_usage() -> None:
    answer = success(Endpoint.CHAT, DONE, model="m", fingerprint="f")
    body = json.loads(answer.body)

    assert answer.status == 200
    assert len(answer.body.splitlines()) == 1
    assert body["object"] == "chat.completion"
    assert body["model"] == "m"
    assert body["choices"][0]["message"]["content"] == "a\u2028b"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_a_text_answer_has_text_instead_of_a_message() -> None:
    body = json.loads(success(Endpoint.TEXT, DONE, model="m", fingerprint="f").body)

    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == "a\u2028b"


def test_two_answers_have_two_ids() -> None:
    first, second = (success(Endpoint.CHAT, DONE, model="m", fingerprint="f") for _ in range(2))

    assert json.loads(first.body)["id"] != json.loads(second.body)["id"]


def test_a_refusal_is_openais_error_envelope() -> None:
    answer = RefusedError("no", param="p", code="c", status=404).answer()

    assert answer.status == 404
    assert json.loads(answer.body) == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "p", "code": "c"}
    }


def test_an_answer_without_a_limit_may_fill_the_context() -> None:
    assert room(60, None, 100, param="messages") == 40
    assert room(60, 40, 100, param="messages") == 40


@pytest.mark.parametrize(("prompt", "wanted"), [(60, 41), (100, None)])
def test_what_does_not_fit_is_refused_with_both_numbers(prompt: int, wanted: int | None) -> None:
    with pytest.raises(RefusedError) as caught:
        room(prompt, wanted, 100, param="messages")

    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    assert "100 tokens" in caught.value.message
    assert "takes 101" in caught.value.message
