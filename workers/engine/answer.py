"""What the engine answers: an HTTP status and one line of OpenAI-shaped JSON."""

import json
import time
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Endpoint(StrEnum):
    """The routes of the OpenAI API that the engine serves."""

    CHAT = "/v1/chat/completions"
    TEXT = "/v1/completions"


class FinishReason(StrEnum):
    """Why a completion ended: by itself (or at a stop string), or at its token limit."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True)
class Answer:
    """An HTTP status and its JSON body; the body has no line break."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Completion:
    """What the model made of one request; `completion_tokens` counts every token chosen, an end token too."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int


class RefusedError(Exception):
    """A request that the engine does not run. `param` names the member at fault."""

    def __init__(self, message: str, *, param: str | None, code: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status

    def answer(self) -> Answer:
        return failure(self.status, self.message, kind="invalid_request_error", param=self.param, code=self.code)


def failure(status: int, message: str, *, kind: str, param: str | None, code: str) -> Answer:
    """OpenAI's error envelope."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Answer(status, _line({"error": error}))


def success(endpoint: Endpoint, completion: Completion, *, model: str, fingerprint: str) -> Answer:
    """OpenAI's completion object. Cached prompt tokens are not known here, so the member is absent, not 0."""
    chat = endpoint is Endpoint.CHAT
    body = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint,
        "choices": [_chat_choice(completion) if chat else _text_choice(completion)],
        "usage": {
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.completion_tokens,
            "total_tokens": completion.prompt_tokens + completion.completion_tokens,
        },
    }
    return Answer(200, _line(body))


def _chat_choice(completion: Completion) -> dict[str, Any]:
    message = {"role": "assistant", "content": completion.text, "refusal": None}
    return {"index": 0, "message": message, "logprobs": None, "finish_reason": completion.finish_reason}


def _text_choice(completion: Completion) -> dict[str, Any]:
    return {"index": 0, "text": completion.text, "logprobs": None, "finish_reason": completion.finish_reason}


def _line(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode("ascii")
