"""The events of one background response, told from its row and its line alone: every reader is told the same, whenever it asks. Pure.

Numbers 0, 1 and 2 are `created`, `queued` and `in_progress`; what follows begins at 3. A response that no engine ran has no 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from slackwater.wire.response import Ending, ResponseStatus, response_object

Event = dict[str, Any]
FIRST_OF_OUTPUT: Final = 3
EMPTY: Final[Mapping[str, dict[str, Any]]] = {
    "message": {"content": []},
    "reasoning": {"content": [], "summary": []},
    "function_call": {"arguments": ""},
}


def log(row: Mapping[str, Any], ended: Ending | None, *, is_running: bool) -> list[Event]:
    """Every event so far, in order; the last one ends the log where the response has ended."""
    queued, running = (response_object(row, None, is_running=state) for state in (False, True))
    told = [_event("response.created", 0, response=queued), _event("response.queued", 1, response=queued)]
    if is_running or (ended is not None and ended.has_run):
        told.append(_event("response.in_progress", 2, response=running))
    if ended is None:
        return told
    numbers = count(FIRST_OF_OUTPUT)
    if ended.status in (ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE):
        told += [one | {"sequence_number": next(numbers)} for one in _output(ended.answer["output"])]
    if ended.status is ResponseStatus.CANCELLED:
        return [*told, error_event("response_cancelled", "The response was cancelled.", next(numbers))]
    final = response_object(row, ended, is_running=False)
    return [*told, _event(f"response.{ended.status}", next(numbers), response=final)]


def error_event(code: str, message: str, number: int) -> Event:
    """The end of a stream that has no other."""
    return _event("error", number, code=code, message=message, param=None)


def _event(type_: str, number: int = 0, /, **members: Any) -> Event:
    return {"type": type_, "sequence_number": number, **members}


def _output(items: list[Any]) -> Iterator[Event]:
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        place = {"item_id": item["id"], "output_index": index}
        begun = item | EMPTY.get(str(item.get("type")), {}) | {"status": "in_progress"}
        yield _event("response.output_item.added", output_index=index, item=begun)
        yield from _inside(item, place)
        yield _event("response.output_item.done", output_index=index, item=item)


def _inside(item: dict[str, Any], place: dict[str, Any]) -> Iterator[Event]:
    if item.get("type") == "function_call" and isinstance(item.get("arguments"), str):
        written = item["arguments"]
        yield _event("response.function_call_arguments.delta", **place, delta=written)
        yield _event(
            "response.function_call_arguments.done", **place, arguments=written, name=str(item.get("name") or "")
        )
    elif item.get("type") == "message":
        for n, part in _parts(item, "content"):
            yield from _part(part, place | {"content_index": n})
    elif item.get("type") == "reasoning":
        yield from _thoughts(item, place)


def _part(part: dict[str, Any], place: dict[str, Any]) -> Iterator[Event]:
    kind, name = part.get("type"), "refusal" if part.get("type") == "refusal" else "text"
    text = part.get(name)
    begun = part | {name: ""} | ({"annotations": []} if name == "text" else {})
    yield _event("response.content_part.added", **place, part=begun)
    if isinstance(text, str) and kind in ("output_text", "refusal"):
        more = {"logprobs": part.get("logprobs") or []} if name == "text" else {}
        yield _event(f"response.{kind}.delta", **place, delta=text, **more)
        yield _event(f"response.{kind}.done", **place, **{name: text}, **more)
    yield _event("response.content_part.done", **place, part=part)


def _thoughts(item: dict[str, Any], place: dict[str, Any]) -> Iterator[Event]:
    for n, part in _parts(item, "summary"):
        if not isinstance(part.get("text"), str):
            continue
        here, text = place | {"summary_index": n}, part["text"]
        yield _event("response.reasoning_summary_part.added", **here, part=part | {"text": ""})
        yield _event("response.reasoning_summary_text.delta", **here, delta=text)
        yield _event("response.reasoning_summary_text.done", **here, text=text)
        yield _event("response.reasoning_summary_part.done", **here, part=part)
    for n, part in _parts(item, "content"):
        if isinstance(part.get("text"), str):
            here, text = place | {"content_index": n}, part["text"]
            yield _event("response.reasoning_text.delta", **here, delta=text)
            yield _event("response.reasoning_text.done", **here, text=text)


def _parts(item: dict[str, Any], name: str) -> list[tuple[int, dict[str, Any]]]:
    """The objects in an array of an item, each with its place; an engine may write anything there."""
    held = item.get(name)
    return [(n, part) for n, part in enumerate(held) if isinstance(part, dict)] if isinstance(held, list) else []
