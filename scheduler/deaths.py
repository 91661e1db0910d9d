"""What follows when a worker dies with requests under lease. Pure.

A range goes back as it was; from the second death on it is split into singles, which run alone; and only a death that struck a request
which ran alone counts against it. Neighbours are never blamed.
"""

from __future__ import annotations

from dataclasses import dataclass

RESCUES_BEFORE_SPLIT = 2
DEATHS_BEFORE_CRASH = 2


@dataclass(frozen=True, slots=True)
class Range:
    """A range to run again: `n` positions from `first`."""

    first: int
    n: int
    rescues: int
    deaths: int


@dataclass(frozen=True, slots=True)
class Crash:
    """The request at this position has killed its engine, alone, as often as is allowed."""

    position: int


def after_death(first: int, n: int, *, rescues: int, deaths: int, was_alone: bool) -> list[Range] | Crash:
    """What becomes of a range whose worker is gone. `rescues` and `deaths` are the counts before this death."""
    if was_alone and n == 1:
        deaths += 1
        if deaths >= DEATHS_BEFORE_CRASH:
            return Crash(first)
    rescues += 1
    if rescues < RESCUES_BEFORE_SPLIT or n == 1:
        return [Range(first, n, rescues, deaths)]
    return [Range(position, 1, rescues, deaths) for position in range(first, first + n)]
