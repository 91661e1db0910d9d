from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.reader.body_rules import ENDPOINTS, ENGINE_CONTROL
from slackwater.reader.lines import Line
from slackwater.reader.request_line import LineError, LineReader, RequestLine
from slackwater.wire.batch_request import Endpoint

CHAT = "/v1/chat/completions"
PROMPTS: dict[str, Any] = {
    "/v1/chat/completions": [{"role": "user", "content": "hi"}],
    "/v1/completions": "hi",
    "/v1/embeddings": "hi",
    "/v1/responses": "hi",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["body", "a", "é"]), inner),
)
DROPPED = object()


def test_every_endpoint_that_a_batch_may_name_has_rules() -> None:
    assert set(get_args(Endpoint)) == set(ENDPOINTS)


def body(endpoint: str = CHAT, **members: Any) -> dict[str, Any]:
    whole = {"model": "tiny-chat", ENDPOINTS[endpoint].prompt: PROMPTS[endpoint], **members}
    return {name: value for name, value in whole.items() if value is not DROPPED}


def envelope(endpoint: str = CHAT, **members: Any) -> dict[str, Any]:
    whole = {"custom_id": "r1", "method": "POST", "url": endpoint, "body": body(endpoint), **members}
    return {name: value for name, value in whole.items() if value is not DROPPED}


def read(data: bytes | dict[str, Any], endpoint: str = CHAT, start: int = 0) -> RequestLine | LineError:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return LineReader(endpoint, {"tiny-chat": 7}.get).read(Line(3, start, raw))


def request(data: bytes | dict[str, Any], endpoint: str = CHAT, start: int = 0) -> RequestLine:
    found = read(data, endpoint, start)
    assert isinstance(found, RequestLine), found
    return found


def refusal(data: bytes | dict[str, Any], endpoint: str = CHAT) -> tuple[str, str | None, str]:
    found = read(data, endpoint)
    assert isinstance(found, LineError), found
    assert found.line == 3
    return found.code, found.param, found.message


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_good_line_is_a_request(endpoint: str) -> None:
    found = request(envelope(endpoint), endpoint, start=1000)

    assert (found.line, found.custom_id, found.url) == (3, "r1", endpoint)
    assert (found.model, found.model_id) == ("tiny-chat", 7)
    assert found.est_tokens == (found.body_length + 3) // 4


@given(
    order=st.permutations(["custom_id", "method", "url", "body", "é", "x"]),
    extra=VALUES,
    ascii_only=st.booleans(),
    indents=st.sampled_from([(",", ":"), (", ", ": "), ("\t,  ", " :\t")]),
    start=st.integers(0, 1 << 40),
)
def test_the_span_holds_exactly_the_body(
    order: list[str], extra: Any, ascii_only: bool, indents: tuple[str, str], start: int
) -> None:
    members = envelope(custom_id="naïve", body=body(user="日本", extra=extra), é=extra, x={"body": {"model": "no"}})
    line = json.dumps({name: members[name] for name in order}, ensure_ascii=ascii_only, separators=indents).encode()

    found = request(line, start=start)

    span = line[found.body_start - start :][: found.body_length]
    assert span == json.dumps(members["body"], ensure_ascii=ascii_only, separators=indents).encode()


@given(
    members=st.dictionaries(st.sampled_from(["custom_id", "method", "url", "body", "x"]), VALUES),
    tail=st.text(),
)
def test_the_short_way_and_the_long_way_agree(members: dict[str, Any], tail: str) -> None:
    usual = json.dumps(envelope(**members))
    other = json.dumps(dict(reversed(envelope(**members).items())))

    short, long = read(usual.encode()), read(other.encode())

    if isinstance(short, RequestLine):
        assert isinstance(long, RequestLine)
        assert short._replace(body_start=0) == long._replace(body_start=0)
    else:
        assert short == long
    assert isinstance(read((usual + tail).encode("utf-8", "replace")), LineError) or not tail.strip(" \t\r\n")


@given(
    custom_id=st.text(min_size=1, max_size=9).filter(lambda text: "\0" not in text and not text.isspace()),
    extra=VALUES,
    ascii_only=st.booleans(),
    indents=st.sampled_from([(",", ":"), (" , ", " :\t")]),
    tail=st.sampled_from(["", " ", "\t "]),
)
def test_both_ways_find_the_same_body(
    custom_id: str, extra: Any, ascii_only: bool, indents: tuple[str, str], tail: str
) -> None:
    members = envelope(custom_id=custom_id, body=body(user="日本", extra=extra))
    written = json.dumps(members["body"], ensure_ascii=ascii_only, separators=indents).encode()

    for ordered in (members, dict(reversed(members.items()))):
        line = json.dumps(ordered, ensure_ascii=ascii_only, separators=indents).encode() + tail.encode()
        found = request(line)
        assert found.custom_id == custom_id
        assert line[found.body_start :][: found.body_length] == written


@given(data=st.binary() | st.text('{}[]",:\\ud8bodymethurlPOST/v1').map(str.encode))
def test_reading_never_raises(data: bytes) -> None:
    assert isinstance(read(data), LineError)


@pytest.mark.parametrize("name", ["custom_id", "method", "url", "body"])
def test_a_missing_member_is_named(name: str) -> None:
    expected = ("missing_required_parameter", name, f"Missing required parameter: '{name}'.")

    missing: dict[str, Any] = {name: DROPPED}

    assert refusal(envelope(**missing)) == expected


def test_the_first_missing_member_is_reported() -> None:
    assert refusal(b"{}")[1] == "custom_id"
    assert refusal(b'{"custom_id":"a"}')[1] == "method"


@pytest.mark.parametrize("line", [b"5", b"[]", b'["a"]', b"null", b'{"custom_id":"a"', b"{} {}", b'{"a" 1}', b"{,}"])
def test_a_line_that_is_not_one_object_is_refused(line: bytes) -> None:
    assert refusal(line)[0] == "invalid_json_line"


def test_a_repeated_member_is_refused_at_every_depth() -> None:
    line = json.dumps(envelope())

    assert refusal((line[:-1] + ',"body":{}}').encode())[0] == "duplicate_key"
    assert refusal(line.replace('"role": "user"', '"role": "user", "role": "a"').encode())[::2] == (
        "duplicate_key",
        "An object has the same key twice. JSON pointer: /body/messages/0",
    )


@pytest.mark.parametrize("order", [1, -1])
def test_depth_is_counted_from_the_top_of_the_line(order: int) -> None:
    def nested(levels: int) -> bytes:
        members = envelope(body=body(metadata=json.loads("[" * levels + "]" * levels)))
        return json.dumps(dict(list(members.items())[::order])).encode()

    assert request(nested(98)).custom_id == "r1"
    assert refusal(nested(99))[::2] == ("too_deep", "The value is nested too deeply; 100 levels are allowed.")


def test_a_custom_id_with_nul_is_refused() -> None:
    assert refusal(envelope(custom_id="a\0b"))[:2] == ("invalid_value", "custom_id")


def test_custom_id_is_measured_in_bytes() -> None:
    assert request(envelope(custom_id="é" * 256)).custom_id == "é" * 256
    assert refusal(envelope(custom_id="é" * 257))[:2] == ("invalid_value", "custom_id")


@pytest.mark.parametrize("value", [None, "x", [], 1])
def test_the_body_is_an_object(value: object) -> None:
    assert refusal(envelope(body=value))[:2] == ("invalid_type", "body")


@pytest.mark.parametrize(
    ("members", "code", "param", "message"),
    [
        ({"model": DROPPED}, "invalid_request", "body.model", "Model parameter is required."),
        ({"model": None}, "invalid_request", "body.model", "Model parameter is required."),
        ({"model": ""}, "invalid_request", "body.model", "Model parameter is required."),
        ({"model": 5}, "invalid_type", "body.model", None),
        ({"messages": DROPPED}, "invalid_request", "body.messages", "Messages parameter is required."),
        ({"messages": "hi"}, "invalid_type", "body.messages", None),
        (
            {"model": "gone"},
            "model_not_found",
            "body.model",
            "The provided model 'gone' is not supported by the Batch API.",
        ),
        ({"stream": "true"}, "invalid_type", "body.stream", None),
        ({"stream": 1}, "invalid_type", "body.stream", None),
        ({"max_completion_tokens": 0}, "invalid_value", "body.max_completion_tokens", None),
        ({"max_tokens": 16.0}, "invalid_type", "body.max_tokens", None),
        ({"max_tokens": True}, "invalid_type", "body.max_tokens", None),
        ({"max_tokens": 0}, "invalid_value", "body.max_tokens", None),
        ({"max_tokens": -1, "max_completion_tokens": 1}, "invalid_value", "body.max_tokens", None),
        ({"max_tokens": 2, "max_completion_tokens": 1}, "invalid_value", "body.max_completion_tokens", None),
    ],
)
def test_a_body_is_refused_by_name(members: dict[str, Any], code: str, param: str, message: str | None) -> None:
    found = refusal(envelope(body=body(**members)))

    assert found[:2] == (code, param)
    assert message is None or found[2] == message


@pytest.mark.parametrize("name", sorted(ENGINE_CONTROL))
def test_engine_control_is_refused_by_name(name: str) -> None:
    named: dict[str, Any] = {name: None}

    assert refusal(envelope(body=body(**named)))[:2] == ("unsupported_parameter", f"body.{name}")


@pytest.mark.parametrize(
    "members",
    [
        {"stream": False},
        {"stream": None},
        {"max_tokens": None, "max_completion_tokens": 5},
        {"service_tier": "flex", "store": True},
        {"encoding_format": "hex"},
        {"unknown": {"kept": 1e-5}},
    ],
)
def test_other_members_pass(members: dict[str, Any]) -> None:
    assert request(envelope(body=body(**members))).custom_id == "r1"


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/embeddings", "/v1/responses"])
def test_each_endpoint_requires_its_prompt(endpoint: str) -> None:
    name = ENDPOINTS[endpoint].prompt
    missing: dict[str, Any] = {name: DROPPED}
    expected = ("invalid_request", f"body.{name}", f"{name.title()} parameter is required.")

    assert refusal(envelope(endpoint, body=body(endpoint, **missing)), endpoint) == expected
    assert refusal(envelope(endpoint, body=body(endpoint, **{name: 5})), endpoint)[0] == "invalid_type"


def test_requests_with_one_system_prompt_share_their_key() -> None:
    def key(system: Any, user: str, **members: Any) -> int:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return request(envelope(body=body(messages=messages, **members))).prefix_key

    tools = [{"type": "function", "function": {"name": "read"}}]

    assert key("be kind", "a") == key("be kind", "b", temperature=0)
    assert key("be kind", "a") != key("be brief", "a")
    assert key("be kind", "a") != key("be kind", "a", tools=tools)
    assert key([{"type": "text", "text": "x"}], "a") == key([{"type": "text", "text": "x"}], "b")
    assert key("s" * 1024 + "x", "a") == key("s" * 1024 + "y", "a")
    assert key([{"type": "image_url", "image_url": {}}], "a") == key("", "a")


def test_a_prefix_key_is_the_same_in_every_process() -> None:
    digest = blake2b(b"tiny-chat\0hi", digest_size=8).digest()

    assert request(envelope()).prefix_key == int.from_bytes(digest, "big", signed=True)


@pytest.mark.parametrize(("one", "other"), [("a", "b"), (["a", "c"], ["b", "c"]), ([1, 2], [1, 3]), ([[1]], [[2]])])
def test_prompts_of_any_shape_have_their_key(one: Any, other: Any) -> None:
    def key(value: Any) -> int:
        endpoint = "/v1/completions"
        return request(envelope(endpoint, body=body(endpoint, prompt=value)), endpoint).prefix_key

    assert key(one) == key(one)
    assert key(one) != key(other)


@given(name=st.sampled_from(["messages", "instructions", "tools"]), value=VALUES)
def test_any_shape_of_prompt_is_read(name: str, value: Any) -> None:
    members: dict[str, Any] = {name: value}
    found = read(envelope(body=body(**members)))

    assert isinstance(found, RequestLine) == (name != "messages" or isinstance(value, list))
