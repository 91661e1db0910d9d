"""When a delivery is tried again: the schedule of Standard Webhooks 1.0, with jitter. Pure."""

from __future__ import annotations

import email.utils
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

# Seconds between one attempt and the next: ten attempts in 75 h 35 min 5 s.
GAPS: Final = (5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
MAX_ATTEMPTS: Final = len(GAPS) + 1
JITTER_RATIO: Final = 0.2
MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600
GONE: Final = 410


class Wish(StrEnum):
    """What a receiver may ask for in its `webhook-delivery` header."""

    DISABLE = "disable"
    ABORT = "abort-message"


@dataclass(frozen=True, slots=True)
class Reply:
    """How one attempt ended. `http` is None when no status came; `error` is None only when the receiver accepted."""

    http: int | None
    error: str | None
    retry_after_seconds: float | None = None
    wish: Wish | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has it."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try again in so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No further attempt, unless a person asks for one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of the delivery, and why its endpoint is to be disabled, if it is."""

    delivery: Delivered | Again | Exhausted
    disable: str | None = None


def decide(reply: Reply, attempts: int, rng: random.Random) -> Decision:
    """`attempts` counts this one. Only 2xx delivers; a redirect is a failure; 410 and `webhook-delivery: disable` disable the endpoint.

    A disabled endpoint keeps its deliveries: they wait for it to be enabled, with the attempts they have left.
    """
    disable = _disable(reply)
    if reply.error is None:
        return Decision(Delivered(), disable)
    if reply.wish is Wish.ABORT:
        return Decision(Exhausted("aborted_by_receiver"), disable)
    if attempts >= MAX_ATTEMPTS:
        return Decision(Exhausted("attempts_exhausted"), disable)
    return Decision(Again(delay(attempts, reply.retry_after_seconds, rng)), disable)


def _disable(reply: Reply) -> str | None:
    if reply.http == GONE:
        return "gone"
    return "asked_by_receiver" if reply.wish is Wish.DISABLE else None


def delay(attempts: int, retry_after_seconds: float | None, rng: random.Random) -> float:
    """Seconds until the next attempt after `attempts` of them (1 to 9): never sooner than the receiver asked, up to 24 h."""
    jittered = GAPS[attempts - 1] * rng.uniform(1 - JITTER_RATIO, 1 + JITTER_RATIO)
    return max(jittered, min(retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS))


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds from `Retry-After`, which is a number or an HTTP date; None when it is missing, unreadable or in the past."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return seconds if seconds > 0 else None


def wish(headers: Mapping[str, str]) -> Wish | None:
    """The receiver's `webhook-delivery`; unknown words are ignored."""
    try:
        return Wish(headers.get("webhook-delivery", "").strip().lower())
    except ValueError:
        return None
