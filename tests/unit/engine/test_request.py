"""What a body is read into, and what is refused by name."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.answer import Endpoint, RefusedError
from workers.engine.request import Request, Sampling, read_request

MODELS = ("m",)
HELLO = [{"role": "user", "content": "hi"}]


def read(endpoint: Endpoint = Endpoint.CHAT, **members: Any) -> Request:
    given_prompt = {"messages": HELLO} if endpoint is Endpoint.CHAT else {"prompt": "once"}
    return read_request(endpoint, json.dumps({"model": "m", **given_prompt, **members}).encode(), models=MODELS)


def refusal(endpoint: Endpoint = Endpoint.CHAT, **members: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        read(endpoint, **members)
    return caught.value


def test_a_plain_chat_takes_the_apis_documented_defaults() -> None:
    assert read() == Request(Endpoint.CHAT, "m", ({"role": "user", "content": "hi"},), None, (), Sampling(), None)


def test_a_plain_completion_is_limited_to_sixteen_tokens_as_documented() -> None:
    assert read(Endpoint.TEXT).max_tokens == 16


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"max_tokens": 16, "max_completion_tokens": 16}, 16),
        ({"max_completion_tokens": 16}, 16),
        ({"max_tokens": 16}, 16),
        ({"max_tokens": None}, None),
    ],
)
def test_either_name_of_the_token_limit_works(members: dict[str, Any], expected: int | None) -> None:
    assert read(**members).max_tokens == expected


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"max_tokens": 16, "max_completion_tokens": 64}, "max_completion_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "16"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 16.0}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", 1]}, "stop"),
        ({"stop": list("abcde")}, "stop"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"stream": True}, "stream"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 0}, "logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"logit_bias": {"1": 1}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.schema",
        ),
        ({"frobnicate": 1}, "frobnicate"),
        ({"prompt": "x"}, "prompt"),
        ({"model": 3}, "model"),
        ({"model": None}, "model"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(members: dict[str, Any], param: str) -> None:
    refused = refusal(**members)

    assert (refused.status, refused.param) == (400, param)
    assert param in refused.message


def test_an_unknown_model_is_not_found() -> None:
    refused = refusal(model="gpt-9")

    assert (refused.status, refused.code, refused.param) == (404, "model_not_found", "model")


def test_an_unknown_endpoint_is_not_found() -> None:
    with pytest.raises(RefusedError) as caught:
        read_request("/v1/embeddings", b"{}", models=MODELS)

    assert caught.value.status == 404


@pytest.mark.parametrize(
    "members",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "flex", "priority": 3},
        {"n": 1, "stream": False, "logprobs": False, "tools": [], "logit_bias": {}, "tool_choice": "none"},
        {"n": None, "stream": None, "frobnicate": None, "stop": None, "seed": None, "temperature": None},
        {"response_format": {"type": "text"}},
    ],
)
def test_members_that_cannot_change_the_answer_are_passed_over(members: dict[str, Any]) -> None:
    assert read(**members) == read()


def test_sampling_members_are_read_as_written() -> None:
    request = read(temperature=0, top_p=0.5, seed=-7, frequency_penalty=-2, presence_penalty=1.5, stop=["a", "b"])

    assert request.sampling == Sampling(0.0, 0.5, -7, -2.0, 1.5)
    assert request.stops == ("a", "b")


def test_a_schema_keeps_the_order_of_its_properties() -> None:
    schema = {"type": "object", "properties": {"reasoning": {}, "answer": {}, "cwe": {}}}
    request = read(response_format={"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}})

    assert request.schema is not None
    assert list(request.schema["properties"]) == ["reasoning", "answer", "cwe"]


def test_json_mode_is_the_schema_of_any_object() -> None:
    assert read(response_format={"type": "json_object"}).schema == {"type": "object"}


@pytest.mark.parametrize(("prompt", "expected"), [("a", "a"), (["a"], "a"), ([1, 2], (1, 2))])
def test_a_completion_takes_one_text_or_one_list_of_ids(prompt: object, expected: object) -> None:
    assert read(Endpoint.TEXT, prompt=prompt).prompt == expected


@pytest.mark.parametrize("prompt", ["", [], ["a", "b"], [[1], [2]], [True], [1.0], 3, None])
def test_other_prompts_are_refused(prompt: object) -> None:
    assert refusal(Endpoint.TEXT, prompt=prompt).param == "prompt"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_type"),
        (b'{"model":"m","temperature":NaN}', "invalid_json"),
        (b'{"model":"m","temperature":-Infinity}', "invalid_json"),
        (b'{"model":"m","model":"n"}', "invalid_json"),
        (b'{"model":"m","seed":' + b"1" * 5000 + b"}", "invalid_json"),
        (b'{"model":"\xff"}', "invalid_unicode"),
        (b'{"model":"m","user":"\\ud83d"}', "invalid_unicode"),
        (b'\xef\xbb\xbf{"model":"m"}', "invalid_json"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "too_deep"),
    ],
    ids=lambda value: str(value)[:32],
)
def test_a_body_that_is_no_plain_json_object_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_request(Endpoint.CHAT, body, models=MODELS)

    assert (caught.value.status, caught.value.code) == (400, code)


def test_a_number_beyond_floats_is_refused() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":1e400}'
    with pytest.raises(RefusedError) as caught:
        read_request(Endpoint.CHAT, body, models=MODELS)

    assert caught.value.param == "temperature"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('aé"', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('aé"', max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["messages", "max_tokens", "stop", "seed", "response_format", "tools", "n", "top_p", "prompt", "x"]
)


@given(endpoint=st.sampled_from(Endpoint), members=st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_body_is_read_or_refused_and_nothing_else(endpoint: Endpoint, members: dict[str, Any]) -> None:
    with contextlib.suppress(RefusedError):
        assert read(endpoint, **members).endpoint is endpoint
