"""Waiting for facts: a test asks again until one holds, and says what it saw where none comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

TICK_SECONDS: Final = 0.02


def until(fact: Callable[[], Any], seconds: float = 60, *, about: Callable[[], object] = str) -> Any:
    """What `fact` returns once it is true; `about` says more when that does not happen in time."""
    ends = time.monotonic() + seconds
    while not (value := fact()):
        assert time.monotonic() < ends, f"not in {seconds} s: {about()}"
        time.sleep(TICK_SECONDS)
    return value


async def until_async(fact: Callable[[], Any], seconds: float = 60) -> Any:
    """As `until`, while the loop's other tasks go on."""
    ends = time.monotonic() + seconds
    while not (value := fact()):
        assert time.monotonic() < ends, f"not in {seconds} s"
        await asyncio.sleep(TICK_SECONDS)
    return value
