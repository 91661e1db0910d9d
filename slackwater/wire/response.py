"""The response object of a background response: the row it is a batch of one in, and its one line (contract: WIRE 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from math import isfinite
from typing import Any, Final, NamedTuple

from slackwater.lifecycle import BatchState
from slackwater.pricing import dollars
from slackwater.wire.batch import Counts, unix, usage

ENDPOINT: Final = "/v1/responses"
PREFIX: Final = "resp_"
# Members of a request that its response repeats, and what they are where the request does not say.
REPEATED: Final[Mapping[str, Any]] = {
    "conversation": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": None,
    "store": True,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": None,
    "top_p": None,
    "truncation": None,
    "user": None,
}
NOTHING_YET: Final[Mapping[str, Any]] = {"error": None, "incomplete_details": None, "output": [], "usage": None}
SHORT_LIFE_SECONDS: Final = 3_600  # after its end, of one that is not to be stored


class ResponseStatus(StrEnum):
    """OpenAI's words for where a response is."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"


ANSWERED: Final = (ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE, ResponseStatus.FAILED)


class Ending(NamedTuple):
    """How a response ended. `answer` is the engine's own object, empty where it gave none; `has_run` says that an engine was asked."""

    status: ResponseStatus
    error: dict[str, str] | None = None
    answer: Mapping[str, Any] = {}
    has_run: bool = False


def repeated(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request's body is kept beside its input, because the response shows it."""
    return {name: body[name] for name in REPEATED if name in body}


def ending(state: BatchState, errors: Mapping[str, Any] | None, line: bytes | None) -> Ending | None:
    """How a response ended that is in this state; None while it may still complete.

    `errors` are those of an input that was refused, `line` is the stored line of a completed batch. One that is being cancelled can
    only be cancelled: it has ended, whatever its engine still brings.
    """
    if state in (BatchState.CANCELLING, BatchState.CANCELLED):
        return Ending(ResponseStatus.CANCELLED)
    if state is BatchState.FAILED:
        return _failed("invalid_prompt", (errors or {})["data"][0]["message"])
    if state is BatchState.EXPIRED:
        return _failed("server_error", "The response could not be made before its completion window ended.")
    if state is not BatchState.COMPLETED:
        return None
    return _of_line(json.loads(line or b"{}", parse_float=_finite))


def response_object(
    row: Mapping[str, Any], ended: Ending | None, *, is_running: bool, waiting: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The OpenAI response object. `waiting` is what is said of one that has not ended: why it waits, and its place in line."""
    status = ended.status if ended else ResponseStatus.IN_PROGRESS if is_running else ResponseStatus.QUEUED
    answer = ended.answer if ended else {}
    shown = {**REPEATED, **row["response"], **NOTHING_YET, **answer}
    own = {
        "id": row["public_id"],
        "object": "response",
        "created_at": unix(row["created_at"]),
        "status": status.value,
        "background": True,
        "completed_at": unix(row["completed_at"]) if status is ResponseStatus.COMPLETED else None,
        "error": ended.error if ended else None,
        "metadata": row["metadata"] or {},
        "store": row["response"].get("store") is not False,
        "background_options": {"completion_window": row["completion_window"]},
    }
    return shown | own | dict(waiting or {})


def with_cost(shown: dict[str, Any], counts: Counts) -> dict[str, Any]:
    """The object and what it has cost."""
    return shown | {"cost": {"currency": "USD", "total": dollars(counts.cost_picodollars)}}


def event_data(row: Mapping[str, Any], ended: Ending, counts: Counts) -> dict[str, Any]:
    """What a subscriber is told of a response that ended; never prompts or outputs."""
    return {
        "id": row["public_id"],
        "status": ended.status.value,
        "usage": usage(counts),
        "metadata": row["metadata"] or {},
    }


def deleted_response(public_id: str) -> dict[str, Any]:
    return {"id": public_id, "object": "response", "deleted": True}


def _of_line(line: Mapping[str, Any]) -> Ending:
    answered = line.get("response")
    if answered is None:
        return _failed("server_error", (line.get("error") or {}).get("message"))
    status, body = answered["status_code"], answered["body"]
    if not 200 <= status < 300:
        return _failed(_code_of(status), _message_in(body) or f"The model server answered {status}.", has_run=True)
    if not isinstance(body, dict) or body.get("object") != "response" or not isinstance(body.get("output"), list):
        return _failed("server_error", "The model server did not answer with a response.", has_run=True)
    return _answered(body)


def _answered(body: dict[str, Any]) -> Ending:
    word = body.get("status") or ResponseStatus.COMPLETED
    if word not in ANSWERED:
        return _failed("server_error", "The model server did not bring the response to an end.", has_run=True)
    status = ResponseStatus(word)
    answer = body | {"output": [_named(item, n) for n, item in enumerate(body["output"])]}
    if status is not ResponseStatus.FAILED:
        return Ending(status, None, answer, has_run=True)
    said = body.get("error")
    error = said if isinstance(said, dict) else {"code": "server_error", "message": "The model server failed."}
    return Ending(status, error, answer, has_run=True)


def _named(item: Any, n: int) -> Any:
    """An item of the output with an id: by it a client tells two items apart."""
    if not isinstance(item, dict) or isinstance(item.get("id"), str):
        return item
    return item | {"id": f"item_{n}"}


def _failed(code: str, message: object, *, has_run: bool = False) -> Ending:
    said = message if isinstance(message, str) and message else "The response could not be made."
    return Ending(ResponseStatus.FAILED, {"code": code, "message": said}, has_run=has_run)


def _code_of(status: int) -> str:
    """The nearest of the codes that OpenAI has for a response that failed."""
    if status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= status < 500 else "server_error"


def _message_in(body: Any) -> str | None:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None
