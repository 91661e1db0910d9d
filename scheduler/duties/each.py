"""Doing a step for each of several batches, where one that always fails must not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def each(items: Iterable[Item], action: Callable[[Item], int]) -> int:
    """The sum of what `action` did for every item. The first failure is raised once all were tried."""
    done, failure = 0, None
    for item in items:
        try:
            done += action(item)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return done
