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
from dataclasses import dataclass, field
from typing import Any, Self

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
        self._runs[call.body] += 1
        if self._runs[call.body] > int(script.get("times", 1 << 30)):
            script = {}
        if "cut" in script:
            return Unanswered(Why.BAD_UPSTREAM)
        if "status" in script:
            return _refusal(int(script["status"]), script.get("retry_after"))
        return Answered(200, answer(call.model, str(script.get("text", "echo")), len(call.body) // 4))

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


def _refusal(status: int, retry_after: Any) -> Answered:
    body = json.dumps({"error": {"message": "scripted", "type": "echo", "param": None, "code": f"status_{status}"}})
    return Answered(status, body.encode(), float(retry_after) if retry_after is not None else None)


def _script_of(body: bytes) -> dict[str, str]:
    """The `name=value` words of the last message, when it begins with `echo:`."""
    if b"echo:" not in body:
        return {}
    messages = json.loads(body).get("messages") or [{}]
    text = messages[-1].get("content")
    if not isinstance(text, str) or not text.startswith("echo:"):
        return {}
    pairs = (word.partition("=") for word in text.removeprefix("echo:").split())
    return {name: value for name, _, value in pairs}


def _append(path: str, call: Call) -> None:
    """One write of the body a run received, hex on a line of its own: several processes may append at once."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{call.id} {call.body.hex()}\n".encode())
    finally:
        os.close(handle)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
