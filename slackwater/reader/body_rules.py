"""What the body of a batch request must and must not hold. Nothing here changes a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """Why a request is refused; `param` names the member, dotted from the top of the line."""

    code: str
    param: str | None
    message: str


class EndpointRules(NamedTuple):
    """The member that carries the prompt, and the name OpenAI gives the API in its messages."""

    prompt: str
    title: str


ENDPOINTS = {
    "/v1/chat/completions": EndpointRules("messages", "Chat Completions"),
    "/v1/completions": EndpointRules("prompt", "Completions"),
    "/v1/embeddings": EndpointRules("input", "Embeddings"),
    "/v1/responses": EndpointRules("input", "Responses"),
}

# By these, vLLM, SGLang and llama.cpp let a caller steer scheduling, caches, transfer, ids or adapters.
ENGINE_CONTROL = frozenset(
    {
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "cache_prompt",
        "cache_salt",
        "data_parallel_rank",
        "extra_key",
        "id_slot",
        "kv_transfer_params",
        "lora_path",
        "priority",
        "request_id",
        "rid",
        "session_params",
        "vllm_xargs",
    }
)
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
ENCODINGS = ("float", "base64")
_RARE = ENGINE_CONTROL | {"stream", "max_completion_tokens", "max_output_tokens", "encoding_format"}

_KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
}


def kind_of(value: object) -> str:
    """The JSON name of a value's type with its article, as OpenAI writes it."""
    return _KINDS.get(type(value), "null")


def wrong_type(param: str, expected: str, value: object) -> Refusal:
    """OpenAI's sentence for a value of the wrong type; `param` is dotted from the top of the line."""
    message = f"Invalid type for '{param}': expected {expected}, but got {kind_of(value)} instead."
    return Refusal("invalid_type", param, message)


def check_body(body: dict[str, Any], url: str, model_id: Callable[[str], int | None]) -> int | Refusal:
    """The id of the body's model, or the first reason to refuse the body."""
    rules = ENDPOINTS[url]
    model, prompt = body.get("model"), body.get(rules.prompt)
    if not model or type(model) is not str:
        return _bad_model(model)
    if prompt is None:
        return Refusal("invalid_request", f"body.{rules.prompt}", f"{rules.prompt.title()} parameter is required.")
    if not _RARE.isdisjoint(body) and (refusal := _check_rare(body, rules)):
        return refusal
    limit = body.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1) and (refusal := _check_token_limits(body)):
        return refusal
    if (type(prompt) is not list or not prompt) and (refusal := _check_prompt(prompt, rules)):
        return refusal
    known = model_id(model)
    return known if known is not None else _unknown_model(model)


def _bad_model(model: object) -> Refusal:
    if model is None or model == "":
        return Refusal("invalid_request", "body.model", "Model parameter is required.")
    return wrong_type("body.model", "a string", model)


def _unknown_model(model: str) -> Refusal:
    shown = model if len(model) <= 100 else model[:99] + "…"
    message = f"The provided model '{shown}' is not supported by the Batch API."
    return Refusal("model_not_found", "body.model", message)


def _check_rare(body: dict[str, Any], rules: EndpointRules) -> Refusal | None:
    control = next((name for name in body if name in ENGINE_CONTROL), None)
    if control is not None:
        message = f"'{control}' steers the model server itself and is not accepted in a batch."
        return Refusal("unsupported_parameter", f"body.{control}", message)
    return _check_stream(body, rules) or _check_token_limits(body) or _check_encoding(body, rules)


def _check_stream(body: dict[str, Any], rules: EndpointRules) -> Refusal | None:
    stream = body.get("stream")
    if stream is None or stream is False:
        return None
    if stream is not True:
        return wrong_type("body.stream", "a boolean", stream)
    message = f"{rules.title}: Streaming is not supported in the Batch API."
    return Refusal("streaming_unsupported", "body.stream", message)


def _check_token_limits(body: dict[str, Any]) -> Refusal | None:
    for name in TOKEN_LIMITS:
        limit = body.get(name)
        if limit is None:
            continue
        if type(limit) is not int:
            return wrong_type(f"body.{name}", "an integer", limit)
        if limit < 1:
            return Refusal("invalid_value", f"body.{name}", f"'{name}' must be at least 1.")
    old, new = body.get("max_tokens"), body.get("max_completion_tokens")
    if old is None or new is None or old == new:
        return None
    message = "'max_tokens' and 'max_completion_tokens' differ. Send one of them, or the same value in both."
    return Refusal("invalid_value", "body.max_completion_tokens", message)


def _check_encoding(body: dict[str, Any], rules: EndpointRules) -> Refusal | None:
    encoding = body.get("encoding_format")
    if rules is not ENDPOINTS["/v1/embeddings"] or encoding is None or encoding in ENCODINGS:
        return None
    return Refusal("invalid_value", "body.encoding_format", "'encoding_format' must be 'float' or 'base64'.")


def _check_prompt(prompt: object, rules: EndpointRules) -> Refusal | None:
    param = f"body.{rules.prompt}"
    if type(prompt) is list and rules is ENDPOINTS["/v1/chat/completions"]:
        return None
    if rules.prompt == "messages":
        return wrong_type(param, "an array", prompt)
    if type(prompt) is not str and type(prompt) is not list:
        return wrong_type(param, "a string or an array", prompt)
    if not prompt and rules is ENDPOINTS["/v1/embeddings"]:
        return Refusal("invalid_value", param, f"'{rules.prompt}' must not be empty.")
    return None
