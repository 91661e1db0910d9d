"""A scripted engine for tests and benchmarks: answers with what it was asked, late, wrong or not at all, as told. Never a default.

A line may script its own run through the text of its last message: `sleep=SECONDS`, `status=CODE`, `retry_after=SECONDS`, `cut`, `die`,
`text=ANSWER`. A status or `cut` with `times=N` happens on the first N runs only.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Self

from scheduler.retry import Answered, Ending, Unanswered, Why
from workers.engines.base import Call, EngineLoad, Options


@dataclass
class EchoEngine:
    """Answers after `latency_seconds`. Runs of one body are counted, so that a script may change its mind."""

    latency_seconds: float = 0.0
    models: tuple[str, ...] | None = None
    log_path: str | None = None
    running: int = 0
    _runs: Counter[bytes] = field(default_factory=Counter)

    @classmethod
    def of(cls, options: Options) -> Self:
        return cls(float(str(options.get("latency_seconds", 0.0))), log_path=_text(options.get("log_path")))

    async def run(self, call: Call) -> Ending:
        self.running += 1
        try:
            return await self._run(call)
        finally:
            self.running -= 1

    async def _run(self, call: Call) -> Ending:
        if self.log_path is not None:
            _append(self.log_path, call)
        script = _script_of(call.body)
        delay = float(script.get("sleep", self.latency_seconds))
        if delay > 0:
            await asyncio.sleep(delay)
        if "die" in script:
            os.kill(os.getpid(), signal.SIGKILL)
        digest = blake2b(call.body, digest_size=16).digest()
        self._runs[digest] += 1
        if self._runs[digest] > int(script.get("times", 1 << 30)):
            script = {}
        if "cut" in script:
            return Unanswered(Why.BAD_UPSTREAM)
        if "status" in script:
            return _refusal(int(script["status"]), script.get("retry_after"))
        return Answered(
            200, ANSWERS.get(call.endpoint, answer)(call.model, str(script.get("text", "echo")), len(call.body) // 4)
        )

    async def load(self) -> EngineLoad:
        return EngineLoad(running=self.running, waiting=0, kv_used_ratio=0.0)

    async def serves(self, model: str) -> bool:
        return self.models is None or model in self.models

    async def close(self) -> None:
        return None


def answer(model: str, text: str, prompt_tokens: int) -> bytes:
    """A chat completion as an OpenAI-compatible server writes it."""
    head = f'{{"id":"chatcmpl-echo","object":"chat.completion","created":0,"model":{json.dumps(model)},"choices":[{{"index":0,"message":'
    usage = f'"usage":{{"prompt_tokens":{prompt_tokens},"completion_tokens":1,"total_tokens":{prompt_tokens + 1}}}'
    message = f'{{"role":"assistant","content":{json.dumps(text)}}},"finish_reason":"stop"}}],'
    return f"{head}{message}{usage}}}".encode()


def response(model: str, text: str, prompt_tokens: int) -> bytes:
    """The same as an answer of the Responses API."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg-echo", "type": "message", "role": "assistant", "status": "completed", "content": content}
    usage = {
        "input_tokens": prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt_tokens + 1,
    }
    head = {"id": "resp-echo", "object": "response", "created_at": 0, "status": "completed", "model": model}
    return json.dumps(head | {"output": [message], "usage": usage}).encode()


def completion(model: str, text: str, prompt_tokens: int) -> bytes:
    """The same as an answer of the Completions API."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 1, "total_tokens": prompt_tokens + 1}
    head = {"id": "cmpl-echo", "object": "text_completion", "created": 0, "model": model}
    return json.dumps(head | {"choices": [choice], "usage": usage}).encode()


def embedding(model: str, _: str, prompt_tokens: int) -> bytes:
    """A vector that is the same for every input."""
    item = {"object": "embedding", "index": 0, "embedding": [1.0, 0.0]}
    usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
    return json.dumps({"object": "list", "model": model, "data": [item], "usage": usage}).encode()


ANSWERS: Final[Mapping[str, Callable[[str, str, int], bytes]]] = {
    "/v1/responses": response,
    "/v1/completions": completion,
    "/v1/embeddings": embedding,
}


def _refusal(status: int, retry_after: Any) -> Answered:
    body = json.dumps({"error": {"message": "scripted", "type": "echo", "param": None, "code": f"status_{status}"}})
    return Answered(status, body.encode(), float(retry_after) if retry_after is not None else None)


def _script_of(body: bytes) -> dict[str, str]:
    """The `name=value` words of the last message, when it begins with `echo:`."""
    if b"echo:" not in body:
        return {}
    text = _last_text(json.loads(body))
    if not text.startswith("echo:"):
        return {}
    pairs = (word.partition("=") for word in text.removeprefix("echo:").split())
    return {name: value for name, _, value in pairs}


def _last_text(body: Mapping[str, Any]) -> str:
    """The last thing said, whichever API the body is for."""
    said = body.get("messages") or body.get("input") or body.get("prompt") or ""
    while isinstance(said, list | dict):
        said = (said[-1] if said else "") if isinstance(said, list) else said.get("content", said.get("text", ""))
    return said if isinstance(said, str) else ""


def _append(path: str, call: Call) -> None:
    """One write of the body a run received, hex on a line of its own: several processes may append at once."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{call.id} {call.body.hex()}\n".encode())
    finally:
        os.close(handle)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
