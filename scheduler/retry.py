"""What follows from how a run ended. Pure: an ending in, a verdict out, with its reason.

Four classes: the capacity was not there (nothing burned), the line is at fault (final), the instance is ill (nothing burned, the instance is
looked at), the answer was broken (an attempt burned).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

CAPACITY_STATUS: Final = frozenset({429, 502, 503, 504, 529})
CAPACITY_CODES: Final = frozenset(
    {"3040", "rate_limit_exceeded", "capacity_exceeded", "resource_exhausted", "server_overloaded"}
)
FIRST_DELAY_SECONDS: Final = 0.5
MOST_DELAY_SECONDS: Final = 60.0
MOST_RETRY_AFTER_SECONDS: Final = 3600.0


class Why(StrEnum):
    """Why a run gave no result: stored with the attempt, and the label of the metric."""

    CAPACITY = "capacity"
    UNREACHABLE = "unreachable"
    DROPPED = "dropped"
    ENGINE_DIED = "engine_died"
    UNAUTHORISED = "unauthorised"
    MODEL_MISSING = "model_missing"
    TIMED_OUT = "timed_out"
    BAD_UPSTREAM = "bad_upstream"
    SERVER_ERROR = "server_error"


@dataclass(frozen=True, slots=True)
class Answered:
    """The engine answered. `retry_after_seconds` is what its header says, if it has one."""

    status: int
    body: bytes
    retry_after_seconds: float | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The engine did not answer: `UNREACHABLE`, `DROPPED` where it had the request, `TIMED_OUT`, or `BAD_UPSTREAM` for an answer that was cut."""

    why: Why


Ending = Answered | Unanswered


@dataclass(frozen=True, slots=True)
class Ended:
    """The line has its result: the engine's answer, or the error where none can be shown."""

    succeeded: bool
    answer: Answered | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """The request goes back for `delay_seconds`; `burns` an attempt, and `blames` the instance where others may fail too."""

    why: Why
    delay_seconds: float
    burns: bool = False
    blames: bool = False
    status: int | None = None


def judge(ending: Ending, *, attempts: int, deferrals: int, max_attempts: int, random: Random) -> Ended | Again:
    """What becomes of a request after a run. `attempts` were burned and `deferrals` made before this run."""
    if isinstance(ending, Unanswered):
        return _unanswered(ending.why, attempts, deferrals, max_attempts, random)
    errors = _errors_of(ending)
    if ending.status in CAPACITY_STATUS or not CAPACITY_CODES.isdisjoint(errors):
        return Again(Why.CAPACITY, _wait(ending.retry_after_seconds, deferrals, random), status=ending.status)
    if ending.status == 401:
        return Again(Why.UNAUTHORISED, _wait(None, deferrals, random), blames=True, status=401)
    if ending.status == 404:
        return Again(Why.MODEL_MISSING, _wait(None, deferrals, random), blames=True, status=404)
    if ending.status == 408 or ending.status >= 500:
        why = Why.TIMED_OUT if ending.status == 408 else Why.SERVER_ERROR
        return _burn(why, ending, attempts, max_attempts, random)
    if 200 <= ending.status < 300:
        return _burn(Why.BAD_UPSTREAM, None, attempts, max_attempts, random) if errors else Ended(True, ending)
    return Ended(False, ending)


def _unanswered(why: Why, attempts: int, deferrals: int, max_attempts: int, random: Random) -> Ended | Again:
    if why in (Why.UNREACHABLE, Why.DROPPED):
        return Again(why, _wait(None, deferrals, random), blames=True)
    return _burn(why, None, attempts, max_attempts, random)


def _burn(why: Why, answer: Answered | None, attempts: int, max_attempts: int, random: Random) -> Ended | Again:
    if attempts + 1 < max_attempts:
        return Again(why, _wait(None, attempts, random), burns=True, status=answer.status if answer else None)
    if answer is not None:
        return Ended(False, answer)
    if why is Why.TIMED_OUT:
        return Ended(False, None, "request_timeout", f"No answer in time, {max_attempts} times.")
    return Ended(False, None, "bad_upstream", f"The model server's answer could not be read, {max_attempts} times.")


def _wait(retry_after: float | None, times: int, random: Random) -> float:
    """Seconds: what the engine asks for, or 0.5 s doubling to a minute; up to a fifth is added, so that many do not come back at once."""
    base = min(MOST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(times, 20))
    if retry_after is not None and retry_after >= 0:
        base = min(retry_after, MOST_RETRY_AFTER_SECONDS)
    return base * (1 + 0.2 * random.random())


def _errors_of(answer: Answered) -> frozenset[str]:
    """The codes and types of the errors in a body; `bad` where it is no JSON object, none where there is no error.

    Servers write `error` as an object or a text, and some a list of `errors`.

    A body that only a strict reader refuses (a raw control character, a byte that is not UTF-8, a very long number) is read all
    the same: its output line is mended, and no result is lost because of a character.
    """
    try:
        value = json.loads(answer.body.decode("utf-8-sig", "replace"), strict=False, parse_int=str)
    except (ValueError, RecursionError):
        return frozenset({"bad"})
    if not isinstance(value, dict):
        return frozenset({"bad"})
    listed = value.get("errors")
    errors = [value.get("error"), *(listed if isinstance(listed, list) else ())]
    return frozenset(word for error in errors if error is not None for word in _words(error))


def _words(error: object) -> tuple[str, ...]:
    if not isinstance(error, dict):
        return ("error",)
    return str(error.get("code")), str(error.get("type"))
