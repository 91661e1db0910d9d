"""How the engine's tests ask and read."""

import json
from typing import Any

from workers.engine import Answer, LocalEngine

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
MODEL = "smollm2-135m-instruct"
CAPITAL = "What is the capital of France?"


def chat(content: str, **members: Any) -> bytes:
    """A greedy request, unless told otherwise."""
    messages = [{"role": "user", "content": content}]
    return json.dumps({"model": MODEL, "messages": messages, "temperature": 0, **members}).encode()


async def ask(engine: LocalEngine, content: str, **members: Any) -> dict[str, Any]:
    """The body of an answer that must be a success."""
    return accepted(await engine.complete(CHAT, chat(content, **members)))


def accepted(answer: Answer) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(answer.body)
    assert answer.status == 200, body
    return body


def refused(answer: Answer, status: int = 400) -> dict[str, Any]:
    body = json.loads(answer.body)
    assert answer.status == status, body
    error: dict[str, Any] = body["error"]
    return error


def text_of(body: dict[str, Any]) -> str:
    content: str = body["choices"][0]["message"]["content"]
    return content


def reason_of(body: dict[str, Any]) -> str:
    reason: str = body["choices"][0]["finish_reason"]
    return reason
