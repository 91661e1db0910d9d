"""From the uploaded line to the engine, and from the engine to the output line: the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slackwater import ids
from slackwater.reader import strict_json
from slackwater.settings import Settings
from tests.integration.api.conftest import MODEL, Api
from tests.integration.api.work import ECHO, at_work, ended
from tests.upstream import ANSWER, Upstream, told

CASES = Path(__file__).parents[2] / "cases"
ENDPOINT = "/v1/chat/completions"
TURNS = b'"messages":[{"role":"user","content":"hi"}]'
HEAD = b'"model":"tiny-chat",' + TURNS

BODIES: dict[str, bytes] = {
    "key order": b'{"zeta":1,' + TURNS + b',"alpha":{"b":1,"a":2},"model":"tiny-chat"}',
    "number text": b"{" + HEAD + b',"n":[1,1.0,1.00,1e2,1E+2,-0,-0.0,0.1e-7,100000000000000000000000001]}',
    "integers beyond 64 bits": b"{" + HEAD + b',"n":' + b"9" * 400 + b"}",
    "escapes": b"{" + HEAD + rb',"s":"\u0041\/\"\\\b\f\n\r\t\u00e9\ud83d\ude00"}',
    "unescaped": b"{" + HEAD + ',"s":"é😀/"}'.encode(),
    "names that look alike": b"{" + HEAD + ',"e\u0301":1,"\u00e9":2,"Ke\u0131":3,"K":4,"\u212a":5}'.encode(),
    "line separators": b"{" + HEAD + ',"s":"a\u2028b\u2029c\u0085d\ufeff\u200b\u202e"}'.encode(),
    "NUL": b"{" + HEAD + rb',"s":"x\u0000y"}',
    "spaces": b'{ \t"model" :\t"tiny-chat" , "messages": [ { "role":"user","content" : "hi" } ] , "e":{ } ,"l":[ ] }',
    "escaped names": b'{"mod\\u0065l":"tiny-chat",' + TURNS + b"}",
    "unknown members": b"{" + HEAD + b',"guided_grammar":"root ::= [a-z]","chat_template_kwargs":{"enable_thinking":false}}',
    "schema": (CASES / "IN-19-schema-property-order.jsonl").read_bytes().partition(b'"body":')[2].rstrip(b"\r\n")[:-1],
}  # fmt: skip

EXACT: dict[str, bytes] = {
    "number text": b'{"choices":[],"x":[1.0,1e2,-0,12345678901234567890123],"z":1,"a":2}',
    "escapes": rb'{"choices":[{"message":{"content":"\u0041\/\u0000\ud83d\ude00"}}]}',
    "spaces": b'{ "choices" : [ ] ,\t"a":{ } }',
    "no usage": b'{"choices":[],"usage":null}',
}
CHANGED: dict[str, tuple[bytes, bytes]] = {
    "on several lines": (b'{\r\n  "choices": [],\n  "a": 1.0\n}\n', b'{  "choices": [],  "a": 1.0}'),
    "line separators": ('{"s":"a\u2028b\u2029c\u0085d"}'.encode(), rb'{"s":"a\u2028b\u2029c\u0085d"}'),
}
MENDED: dict[str, tuple[bytes, Any]] = {
    "NaN": (b'{"logprobs":[NaN,1.5]}', {"logprobs": [None, 1.5]}),
    "infinity": (b'{"logprob":-Infinity,"x":Infinity,"y":1e999}', {"logprob": None, "x": None, "y": None}),
    "lone surrogate": (rb'{"s":"x\ud83d"}', {"s": "x\ufffd"}),
    "not UTF-8": (b'{"s":"\xff"}', {"s": "\ufffd"}),
    "raw control characters": (b'{"s":"a\x00\nb"}', {"s": "a\0\nb"}),
}


def line(custom_id: str, body: bytes) -> bytes:
    head = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT}
    return json.dumps(head).encode()[:-1] + b', "body":' + body + b"}"


def asking(name: str) -> bytes:
    return b'{"user":' + json.dumps(name).encode() + b"," + HEAD + b"}"


def behind(api: Api, upstream: Upstream) -> None:
    """The upstream becomes the instance that serves every model."""
    with psycopg.connect(api.dsn, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO instance (public_id, name, engine, url) VALUES (%s, %s, 'openai_http', %s)",
            (ids.new("inst_"), ECHO, upstream.url),
        )
        owner.execute("INSERT INTO instance_model SELECT i.id, m.id, m.name FROM instance i, model m")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(models=(MODEL,)) as upstream:
        yield upstream


def outputs(api: Api, settings: Settings, upstream: Upstream, lines: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The batch over `lines` once it is final, and the lines of its output file."""
    behind(api, upstream)
    client, http = api.client(), api.http()
    file = client.files.create(file=("in.jsonl", b"\n".join(lines)), purpose="batch")
    made = http.post("/v1/batches", json={"input_file_id": file.id, "endpoint": ENDPOINT, "completion_window": "24h"})
    with at_work(settings):
        batch = dict(ended(http, made.json()["id"]))
    assert (batch["status"], batch["errors"]) == ("completed", None)
    content = client.files.content(batch["output_file_id"]).read()
    assert content.endswith(b"\n")
    assert len(content.decode().splitlines()) == content.count(b"\n"), "no reader sees another line end than LF"
    return batch, content[:-1].split(b"\n")


def test_the_engine_gets_the_bytes_of_the_client(api: Api, api_settings: Settings, upstream: Upstream) -> None:
    batch, out = outputs(api, api_settings, upstream, [line(name, body) for name, body in BODIES.items()])

    assert sorted(upstream.bodies) == sorted(BODIES.values())
    assert batch["request_counts"]["completed"] == len(BODIES)
    assert [json.loads(one)["custom_id"] for one in out] == list(BODIES)
    assert all(ANSWER in one for one in out)


def test_the_output_has_the_bytes_of_the_engine(api: Api, api_settings: Settings, upstream: Upstream) -> None:
    answers = EXACT | {f"{name}, changed": raw for name, (raw, _) in CHANGED.items()}
    answers |= {f"{name}, mended": raw for name, (raw, _) in MENDED.items()}
    upstream.handler = told({asking(name): raw for name, raw in answers.items()})

    batch, out = outputs(api, api_settings, upstream, [line(name, asking(name)) for name in answers])

    found = {json.loads(one)["custom_id"]: one for one in out}
    for name, raw in EXACT.items():
        assert found[name].partition(b',"body":')[2] == raw + b'},"error":null}', name
    for name, (_, written) in CHANGED.items():
        assert found[f"{name}, changed"].partition(b',"body":')[2] == written + b'},"error":null}', name
    for name, (_, value) in MENDED.items():
        response = strict_json.parse(found[f"{name}, mended"])["response"]
        assert (response["body"], response["slackwater"]) == (value, {"reencoded": True}), name
    assert batch["usage"]["total_tokens"] == 0


def test_every_answer_of_the_cases_is_a_line(api: Api, api_settings: Settings, upstream: Upstream) -> None:
    """RS-01: none is lost, and what the engine did not say of its usage counts as nothing."""
    cases = json.loads((CASES / "RS-01-engine-outputs.json").read_bytes())
    answers = {case["case"]: json.dumps(case, ensure_ascii=False).encode("utf-8", "surrogatepass") for case in cases}
    upstream.handler = told({asking(name): raw for name, raw in answers.items()})

    batch, out = outputs(api, api_settings, upstream, [line(name, asking(name)) for name in answers])

    bodies = {one["custom_id"]: one["response"]["body"] for one in map(strict_json.parse, out)}
    assert [bodies[name]["case"] for name in answers] == list(answers)
    assert bodies["line separators"]["content"] == "a\u2028b\u0085c"
    assert bodies["lone surrogate"]["content"].startswith("x\ufffd")
    assert bodies["nul"]["content"] == "x\0y"
    assert bodies["truncated tool call"]["tool_arguments"] == '{"path": "src/app'
    assert bodies["usage missing"]["usage"] is None
    usage = batch["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (100, 5)
    assert usage["input_tokens_details"]["cached_tokens"] == 100
