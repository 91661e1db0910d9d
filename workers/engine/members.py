"""Which members of a request body the engine honours, may pass over, or refuses by name.

Nothing that could change the output is passed over: a member in none of these tables is refused as unknown.
`null` counts as absent throughout, as in OpenAI's API.
"""

from collections.abc import Mapping
from typing import Any, Final

from workers.engine.answer import Endpoint, RefusedError

_SHARED: Final = frozenset(
    {"model", "max_tokens", "temperature", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty"}
)
HONOURED: Final[Mapping[Endpoint, frozenset[str]]] = {
    Endpoint.CHAT: _SHARED | {"messages", "max_completion_tokens", "response_format"},
    Endpoint.TEXT: _SHARED | {"prompt"},
}

HARMLESS: Final = frozenset(
    {
        "cache_salt",
        "metadata",
        "parallel_tool_calls",
        "priority",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "ignore_eos": (False,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "min_p": (0, 0.0),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "prediction": (),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1, 1.0),
    "stream": (False,),
    "stream_options": (),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "top_k": (0, -1),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}
"""Known members that the engine cannot honour, with the values at which they ask for nothing."""

_REASONS: Final[Mapping[str, str]] = {
    "n": "only one choice per request is made: use n=1",
    "stream": "answers of a queue are whole: use stream=false",
    "tools": "the model's chat template has no place for tools",
}


def check_members(endpoint: Endpoint, body: Mapping[str, Any]) -> None:
    """Raises `RefusedError` for the first member that cannot be honoured."""
    for name, value in body.items():
        if name in HONOURED[endpoint] or name in HARMLESS or value is None:
            continue
        if name not in NEUTRAL:
            raise RefusedError(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        if not any(type(value) is type(neutral) and value == neutral for neutral in NEUTRAL[name]):
            reason = _REASONS.get(name, "this engine cannot honour it")
            raise RefusedError(f"Unsupported parameter: '{name}' ({reason}).", param=name, code="unsupported_parameter")
