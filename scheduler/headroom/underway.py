"""Batch prompts that an upstream is reading: how long it will, and whether they are given up for a live request that stands behind them.

Whole prompts were handed over, and an upstream tells only how many iterations it has run: the rest is reckoned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from scheduler.admission import Hold
from scheduler.headroom.counters import Counters
from scheduler.headroom.feed import Feed
from slackwater.explain import Reason

FIRST_READING_MS: Final = 25.0
AHEAD_SECONDS: Final = 0.05
WATCH_SECONDS: Final = 0.1
SAMPLE_SECONDS: Final = 0.25
TAKE_BACK_SECONDS: Final = 0.2


@dataclass
class Underway:
    """`reading_ms` is an iteration that reads `cap` tokens; `at` is the time that is asked about.

    `in_turn`: one prompt fills an iteration, so that prompts are read one after the other, and live ones after them.
    """

    feed: Feed
    counters: Counters
    cap: int
    in_turn: bool
    reading_ms: float = FIRST_READING_MS
    at: float = 0.0

    @property
    def iteration(self) -> float | None:
        """By now, at no more than the pace of iterations that read: the last sample may have seen faster ones."""
        return self.counters.iteration(self.at, 1000 / self.reading_ms)

    @property
    def count(self) -> int:
        """Prompts that will still be read a moment from now."""
        return self.feed.prefilling((self.iteration or 0.0) + AHEAD_SECONDS * 1000 / self.reading_ms)

    @property
    def seconds(self) -> float:
        """Until all of them have been read."""
        return self.feed.left(self.iteration or 0.0) * self.reading_ms / 1000

    @property
    def again_seconds(self) -> float | None:
        """When to decide again before the next sample: when all have been read, and sooner where live prompts stand behind one."""
        left = self.seconds
        return min(left, WATCH_SECONDS if self.in_turn else SAMPLE_SECONDS) if left > 0 else None

    def started(self, prompt_tokens: int) -> float:
        """One more. Returns the seconds that it takes to read."""
        self.feed.start(prompt_tokens, self.iteration, self.cap, in_turn=self.in_turn)
        return prompt_tokens / self.cap * self.reading_ms / 1000

    def can_take_back(self) -> bool:
        return self.feed.can_take_back(self.iteration or 0.0)

    def give_up(self, hold: Hold, *, is_behind: bool) -> Hold:
        """The hold with what it takes back. A live request `is_behind` a prompt of which much is left: that is taken back, too."""
        is_live = is_behind and hold.reason is Reason.LIVE_WAITING
        if is_live and self.seconds >= TAKE_BACK_SECONDS and self.can_take_back():
            hold = replace(hold, cancel_unprefilled=True)
        if not hold.cancel_unprefilled:
            return hold
        hold = replace(hold, newest=self.count)
        self.feed.taken_back(self.iteration or 0.0)
        return hold
