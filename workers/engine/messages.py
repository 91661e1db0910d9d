"""Reads chat messages into the role and text pairs that the model's template can render. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from workers.engine.answer import RefusedError

Message = dict[str, str]

ROLES: Final[Mapping[str, str]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
"""The client's role, and the template's. `developer` is OpenAI's newer word for the same instructions."""

_KNOWN: Final = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def read_messages(value: object) -> tuple[Message, ...]:
    """Raises `RefusedError` naming the first member that cannot be rendered; drops nothing silently."""
    if not isinstance(value, list):
        raise wrong_type("messages", "an array of messages")
    if not value:
        raise RefusedError("'messages' must hold at least one message.", param="messages", code="invalid_value")
    called: set[str] = set()
    return tuple(_message(item, f"messages[{index}]", called) for index, item in enumerate(value))


def wrong_type(param: str, expected: str) -> RefusedError:
    return RefusedError(f"Invalid type for '{param}': expected {expected}.", param=param, code="invalid_type")


def _message(item: object, at: str, called: set[str]) -> Message:
    if not isinstance(item, dict):
        raise wrong_type(at, "an object")
    role = _role(item, at)
    _check_known(item, at)
    calls = _calls(item.get("tool_calls"), role, f"{at}.tool_calls")
    _check_reply(item.get("tool_call_id"), role, f"{at}.tool_call_id", called)
    called.update(call["id"] for call in calls)
    texts = [] if calls and item.get("content") is None else [_text(item.get("content"), f"{at}.content")]
    return {"role": role, "content": "\n".join(texts + [_rendered(call) for call in calls])}


def _role(item: Mapping[str, Any], at: str) -> str:
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        allowed = ", ".join(ROLES)
        raise RefusedError(f"'{at}.role' must be one of: {allowed}.", param=f"{at}.role", code="invalid_value")
    return ROLES[role]


def _check_known(item: Mapping[str, Any], at: str) -> None:
    for name, value in item.items():
        if name not in _KNOWN and value not in (None, []):
            message = f"Unsupported parameter: '{at}.{name}' (the model's chat template has no place for it)."
            raise RefusedError(message, param=f"{at}.{name}", code="unsupported_parameter")


def _text(content: object, at: str) -> str:
    """Text parts are joined by line breaks, as vLLM joins them for templates that take a string."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise wrong_type(at, "a string or a non-empty array of text parts")
    return "\n".join(_part(part, f"{at}[{index}]") for index, part in enumerate(content))


def _part(part: object, at: str) -> str:
    if not isinstance(part, dict):
        raise wrong_type(at, "an object")
    if part.get("type") != "text":
        message = f"'{at}.type' must be 'text': the model reads no other kind of content."
        raise RefusedError(message, param=f"{at}.type", code="unsupported_content")
    text = part.get("text")
    if not isinstance(text, str):
        raise wrong_type(f"{at}.text", "a string")
    return text


def _calls(value: object, role: str, at: str) -> Sequence[dict[str, Any]]:
    if value is None or value == []:
        return []
    if role != "assistant":
        raise RefusedError(f"'{at}' belongs to assistant messages only.", param=at, code="invalid_value")
    if not isinstance(value, list):
        raise wrong_type(at, "an array")
    return [_call(item, f"{at}[{index}]") for index, item in enumerate(value)]


def _call(item: object, at: str) -> dict[str, Any]:
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not isinstance(function, dict):
        raise wrong_type(at, "an object with 'id' and 'function'")
    if not isinstance(function.get("name"), str):
        raise wrong_type(f"{at}.function.name", "a string")
    arguments = _arguments(function.get("arguments"), f"{at}.function.arguments")
    return {"id": item["id"], "name": function["name"], "arguments": arguments}


def _arguments(value: object, at: str) -> dict[str, Any]:
    """Engines write `""` for a call without arguments, so it reads as `{}`."""
    if not isinstance(value, str):
        raise wrong_type(at, "a string of JSON")
    try:
        arguments = json.loads(value or "{}")
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"'{at}' is not valid JSON: {error}.", param=at, code="invalid_value") from error
    if not isinstance(arguments, dict):
        raise RefusedError(f"'{at}' must be a JSON object.", param=at, code="invalid_value")
    return arguments


def _check_reply(value: object, role: str, at: str, called: set[str]) -> None:
    if value is not None and role != "tool":
        raise RefusedError(f"'{at}' belongs to tool messages only.", param=at, code="invalid_value")
    if role == "tool" and value not in called:
        raise RefusedError(f"'{at}' must be the id of an earlier tool call.", param=at, code="invalid_value")


def _rendered(call: Mapping[str, Any]) -> str:
    """A replayed call in the Hermes form, since the template has no form of its own."""
    text = json.dumps({"name": call["name"], "arguments": call["arguments"]}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"
