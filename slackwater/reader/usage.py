"""The token counts in an engine's answer."""

from __future__ import annotations

from typing import Any, NamedTuple


class Usage(NamedTuple):
    """Tokens of one answer; None where the engine did not say, which is not 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


UNKNOWN = Usage()


def usage_of(answer: Any) -> Usage:
    """The usage of a chat, completion, response or embedding answer; what it does not say is unknown.

    Cached tokens are part of the prompt: more of them than the prompt has are cut to the prompt.
    """
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return UNKNOWN
    prompt = _first_count(usage, "prompt_tokens", "input_tokens")
    completion = _first_count(usage, "completion_tokens", "output_tokens")
    cached = _cached(usage)
    if cached is not None and prompt is not None:
        cached = min(cached, prompt)
    return Usage(prompt, completion, cached)


def _cached(usage: dict[str, Any]) -> int | None:
    for name in ("prompt_tokens_details", "input_tokens_details"):
        details = usage.get(name)
        if isinstance(details, dict) and (count := _first_count(details, "cached_tokens")) is not None:
            return count
    return None


def _first_count(holder: dict[str, Any], *names: str) -> int | None:
    """The first of the members that is a count: an integer of at least 0 that fits the database's integer."""
    counts = (holder.get(name) for name in names)
    return next((count for count in counts if type(count) is int and 0 <= count < 1 << 31), None)
