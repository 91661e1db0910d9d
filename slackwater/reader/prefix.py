"""Which requests a model server could serve from one cached prefix: a key for grouping, nothing else."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from typing import Any

SHARED_CHARACTERS = 1024
SHARED_TOKENS = 256


def prefix_key(body: dict[str, Any], prompt: str) -> int:
    """A signed 64-bit key, the same in every process, of the model, the prompt's start and the tools' names.

    `prompt` names the member that holds the prompt; its first 1,024 characters count, of messages those of
    the first (mostly the system prompt). Requests with one key may still share no prefix: the key only
    groups.
    """
    text = _start(body.get("instructions") or body[prompt])
    tools = body.get("tools")
    seed = f"{body['model']}\0{text[:SHARED_CHARACTERS]}"
    return _digest(seed if not tools else f"{seed}\0{_names(tools)}")


def _start(value: Any) -> str:
    """The first text in a prompt: of a string, messages, content parts or token ids."""
    while type(value) is list or type(value) is dict:
        if type(value) is dict:
            value = value.get("content") or value.get("text")
        elif value and type(value[0]) is int:
            return str(value[:SHARED_TOKENS])
        else:
            value = value[0] if value else ""
    return value if type(value) is str else ""


def _names(tools: object) -> str:
    if not isinstance(tools, list):
        return ""
    named = [tool.get("function", tool) for tool in tools if isinstance(tool, dict)]
    return json.dumps([function.get("name") for function in named if isinstance(function, dict)])


@lru_cache(maxsize=256)
def _digest(seed: str) -> int:
    return int.from_bytes(blake2b(seed.encode(), digest_size=8).digest(), "big", signed=True)
