"""Answers held to a schema by a grammar, however much the model would rather write prose."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.engine.asking import CHAT, ask, chat, reason_of, refused, text_of
from workers.engine import LocalEngine

pytestmark = pytest.mark.engine

VERDICT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "reasoning": {"type": "string", "maxLength": 24},
        "answer": {"enum": ["safe", "unsafe"]},
        "cwe": {"type": ["integer", "null"], "minimum": 1, "maximum": 1500},
    },
    "required": ["reasoning", "answer", "cwe"],
}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "name": {"enum": ["leaf", "branch"]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1},
            },
            "required": ["name"],
        }
    },
}


def named(schema: object, **members: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, **members}}


def is_verdict(value: Any) -> bool:
    return (
        list(value) == ["reasoning", "answer", "cwe"]
        and len(value["reasoning"]) <= 24
        and value["answer"] in ("safe", "unsafe")
        and (value["cwe"] is None or 1 <= value["cwe"] <= 1500)
    )


def is_tree(value: Any) -> bool:
    return value["name"] in ("leaf", "branch") and all(map(is_tree, value.get("children", [])))


@pytest.mark.parametrize(
    ("schema", "holds"),
    [
        (VERDICT, is_verdict),
        ({"type": "integer", "minimum": 3, "maximum": 7}, lambda value: 3 <= value <= 7),
        ({"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}, re.compile("[A-Z]{3}-[0-9]{2}").fullmatch),
        (
            {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
            lambda value: 2 <= len(value) <= 3 and all(type(item) is bool for item in value),
        ),
        (
            {"anyOf": [{"const": {"ok": True}}, {"type": "string", "format": "date"}]},
            lambda value: value == {"ok": True} or re.fullmatch(r"\d{4}-\d\d-\d\d", value),
        ),
    ],
    ids=["verdict", "integer", "pattern", "array", "any-of"],
)
@pytest.mark.parametrize("members", [{}, {"temperature": 1.5, "seed": 3}], ids=["greedy", "hot"])
async def test_an_answer_holds_its_schema(
    engine: LocalEngine, schema: object, holds: Callable[[Any], object], members: dict[str, Any]
) -> None:
    body = await ask(engine, "Is `eval(input())` safe?", max_tokens=60, response_format=named(schema), **members)

    assert reason_of(body) == "stop"
    assert holds(json.loads(text_of(body)))


async def test_a_recursive_schema_holds_to_any_depth(engine: LocalEngine) -> None:
    body = await ask(engine, "Draw a deep tree.", max_tokens=40, response_format=named(TREE))
    nested = re.match(r'\{"name": "(leaf|branch)"(, "children": \[\{"name": "(leaf|branch)")*', text_of(body))

    if reason_of(body) == "stop":
        assert is_tree(json.loads(text_of(body)))
    else:
        assert nested
        assert len(text_of(body)) - nested.end() < len(', "children": [{"name": "branch"')


async def test_json_mode_gives_an_object(engine: LocalEngine) -> None:
    body = await ask(engine, "Describe a cat as JSON.", response_format={"type": "json_object"}, max_tokens=30)

    assert reason_of(body) == "length" or isinstance(json.loads(text_of(body)), dict)
    assert text_of(body).startswith("{")


async def test_a_structured_answer_that_was_cut_says_so(engine: LocalEngine) -> None:
    body = await ask(engine, "Judge this.", max_tokens=4, response_format=named(VERDICT, strict=True))

    assert reason_of(body) == "length"
    assert text_of(body).startswith('{"re')
    with pytest.raises(ValueError, match="line 1"):
        json.loads(text_of(body))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string", "not": {"const": "x"}}, 'Unimplemented keys: ["not"]'),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "if": {}, "then": {}}, '"if", "then"'),
        ({"type": "string", "not": {}, "x-guidance": {"lenient": True}}, "not"),
        ({"type": "strin"}, "strin"),
        ({"enum": []}, "Unsatisfiable"),
        ({"$ref": "#"}, "no answer satisfies it"),
        ({"$ref": "https://example.invalid/schema"}, "does not fetch"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-ahead"),
        ({"description": "x" * 300_000}, "longer than"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_schema_that_cannot_be_enforced_is_refused_at_once(
    engine: LocalEngine, schema: object, reason: str
) -> None:
    error = refused(await engine.complete(CHAT, chat("x", response_format=named(schema))))

    assert (error["code"], error["param"]) == ("unsupported_schema", "response_format")
    assert reason in error["message"]
