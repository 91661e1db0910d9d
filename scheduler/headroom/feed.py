"""Prompt tokens that may start over an upstream: a bucket that fills at the rate the iterations have room for.

An upstream gets whole prompts, so the last start may overdraw; what was overdrawn is waited off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import Final

SECONDS_KEPT: Final = 0.5
MOST_SECONDS: Final = 1.0
SMOOTH_SECONDS: Final = 3.0
SPARE_SHARE: Final = 0.02
FIRST_SPARE: Final = 4_000.0
MOST_SPARE: Final = 30_000.0


@dataclass
class Feed:
    """`tokens` may start now; negative after a prompt larger than the room. `spare` may be read for nothing. Rates are tokens a second."""

    tokens: float = 0.0
    live_rate: float = 0.0
    own_rate: float = 0.0
    spare: float = FIRST_SPARE
    _started: float = 0.0
    _reading: list[tuple[float, float, int]] = field(default_factory=list)
    _filled_at: float | None = None

    def start(self, prompt_tokens: int, iteration: float | None, cap: int, *, in_turn: bool = False) -> None:
        """A request with so many prompt tokens was started; an iteration computes at most `cap` of them.

        `in_turn`: it is read after those that were started before, since one prompt fills an iteration.
        """
        self.tokens -= prompt_tokens
        self._started += prompt_tokens
        self.spare = min(MOST_SPARE, self.spare + SPARE_SHARE * prompt_tokens)
        if iteration is not None:
            iteration = max(iteration, self._reading[-1][1]) if in_turn and self._reading else iteration
            self._reading.append((iteration, iteration + prompt_tokens / cap, cap))

    def prefilling(self, iteration: float) -> int:
        """Started requests whose prompts cannot have been read by this iteration."""
        return sum(1 for _, end, _ in self._reading if end > iteration)

    def left(self, iteration: float) -> float:
        """Iterations until every started prompt has been read."""
        return max((end - iteration for _, end, _ in self._reading), default=0.0) if self._reading else 0.0

    def can_take_back(self, iteration: float) -> bool:
        """Prompts that are being read may be given up as long as what is read for nothing stays a small share of what was started."""
        return self._unread(iteration) <= self.spare

    def taken_back(self, iteration: float) -> None:
        """No prompt is being read any more. Each is counted whole: how far it had come is known too late to keep a bound by."""
        self.spare -= self._unread(iteration)
        self._reading = []

    def _unread(self, iteration: float) -> float:
        return sum((last - first) * cap for first, last, cap in self._reading if last > iteration)

    def attention(self, begin: float, end: float) -> float:
        """Σ chunk·(past + chunk/2) of own prompts over the iterations from `begin` to `end`, as if nothing had delayed them."""
        total = 0.0
        for first, last, cap in self._reading:
            a, b = max(begin, first) - first, min(end, last) - first
            total += cap * cap * (b * b - a * a) / 2 if b > a else 0.0
        self._reading = [r for r in self._reading if r[1] > end]
        return total

    def see(self, prompt_rate: float, share: float, seconds: float) -> None:
        """Prompt tokens a second the engine computed over the last `seconds`. Own starts are `share` of all batch starts."""
        weight = 1.0 - exp(-seconds / SMOOTH_SECONDS)
        own = self._started / max(share, 0.01) / seconds
        self._started = 0.0
        self.own_rate += weight * (own - self.own_rate)
        self.live_rate += weight * (prompt_rate - own - self.live_rate)

    def fill(self, rate: float, now: float) -> None:
        """Time passes with room for `rate`; what is not used within half a second is gone."""
        seconds = 0.0 if self._filled_at is None else min(MOST_SECONDS, max(0.0, now - self._filled_at))
        self._filled_at = now
        most = max(1.0, rate * SECONDS_KEPT)
        self.tokens = min(most, self.tokens + max(0.0, rate) * seconds)

    def stop(self, now: float) -> None:
        """Nothing is kept for later over a hold that lasts."""
        self.tokens = min(0.0, self.tokens)
        self._filled_at = now
