"""What a phase came to: spreads, rates, and how often the worker stopped and started. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from benchmarks.beside_live.chat import Heard
from benchmarks.beside_live.load import Stretch

MOMENT_SECONDS: Final = 1.0
FLAP_SECONDS: Final = 5.0
FEEDING: Final = (None, "full")


@dataclass(frozen=True, slots=True)
class Tail:
    """Percentiles by nearest rank, in seconds."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Tail | None:
        """None of nothing."""
        ordered = sorted(values)
        return cls(*(ordered[ceil(q * len(ordered)) - 1] for q in (0.5, 0.95, 0.99))) if ordered else None


@dataclass(frozen=True, slots=True)
class Admission:
    """How the worker's decisions went. `full` is the feed at work, not a hold: there is no room for another prompt at the moment.

    A hold shorter than a second lets a live prompt pass (`moments`); a longer one is a stop, and its end a start. A stop within five
    seconds of the last start is a flap. `held` are decisions by reason.
    """

    decisions: int = 0
    moments: int = 0
    stops: int = 0
    starts: int = 0
    flaps: int = 0
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. Rates are batch tokens a second, of prompts and answers; None where there is no such stretch."""

    name: str
    seconds: float
    chats: int
    failed: int
    first_token: Tail | None
    gap: Tail | None
    batch_rate: float
    idle_rate: float | None
    busy_rate: float | None
    completed: int
    admission: Admission


def batch_tokens(counted: Sequence[int], phase: Sequence[Stretch], heard: Sequence[Heard]) -> list[int]:
    """Batch tokens of each stretch: what the engine counted between its edges, less what chat got."""
    edges = zip(counted, counted[1:], phase, strict=False)
    return [max(0, after - before - sum(h.tokens(s.begin, s.end) for h in heard)) for before, after, s in edges]


def rate(tokens: Sequence[int], phase: Sequence[Stretch], *, busy: bool | None = None) -> float | None:
    """Tokens a second over the stretches of a kind, or over all."""
    kind = [(n, s.seconds) for n, s in zip(tokens, phase, strict=True) if busy is None or s.is_busy is busy]
    return sum(n for n, _ in kind) / sum(seconds for _, seconds in kind) if kind else None


def admission(lines: Sequence[Mapping[str, Any]]) -> Admission:
    """From the worker's log of a phase, in order of time."""
    moments = stops = starts = flaps = 0
    started_at = float("-inf")
    for begin, end in holds(lines):
        if end is not None and end - begin < MOMENT_SECONDS:
            moments += 1
            continue
        stops, flaps = stops + 1, flaps + (begin - started_at < FLAP_SECONDS)
        if end is not None:
            starts, started_at = starts + 1, end
    held = Counter(line["reason"] for line in lines if line["reason"] is not None)
    return Admission(len(lines), moments, stops, starts, flaps, dict(held))


def holds(lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float | None]]:
    """When each hold began and ended; no end for one that the log's end cuts."""
    begin: float | None = None
    for line in lines:
        if line["reason"] in FEEDING:
            if begin is not None:
                yield begin, line["at"]
            begin = None
        elif begin is None:
            begin = line["at"]
    if begin is not None:
        yield begin, None


def phase_of(
    name: str,
    phase: Sequence[Stretch],
    heard: Sequence[Heard],
    counted: Sequence[int],
    log: Sequence[Mapping[str, Any]],
    completed: int,
) -> Phase:
    """`counted` are the engine's tokens at the begin and at the end of every stretch."""
    tokens = batch_tokens(counted, phase, heard)
    first = [h.first_token_seconds for h in heard if h.first_token_seconds is not None]
    return Phase(
        name,
        phase[-1].end,
        len(heard),
        sum(h.failed is not None for h in heard),
        Tail.of(first),
        Tail.of([gap for h in heard for gap in h.gaps]),
        rate(tokens, phase) or 0.0,
        rate(tokens, phase, busy=False),
        rate(tokens, phase, busy=True),
        completed,
        admission(log),
    )
