"""What live traffic feels on each instance: how many run and wait, and the times to the first token and between tokens."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from api.live import Load

WINDOW_SECONDS: Final = 60.0
MOST_SAMPLES: Final = 4096


@dataclass
class Times:
    """Measured seconds of the last minute."""

    clock: Callable[[], float]
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))

    def add(self, seconds: float) -> None:
        self.samples.append((self.clock(), seconds))

    def p99(self) -> float | None:
        """The 99th percentile, nearest rank; None where nothing was measured."""
        oldest = self.clock() - WINDOW_SECONDS
        while self.samples and self.samples[0][0] < oldest:
            self.samples.popleft()
        seconds = sorted(s for _, s in self.samples)
        return seconds[ceil(0.99 * len(seconds)) - 1] if seconds else None


@dataclass
class Traffic:
    """Live requests of this process on one instance."""

    clock: Callable[[], float]
    changed: Callable[[], None] = lambda: None
    running: int = 0
    waiting: int = 0
    ttft: Times = field(init=False)
    itl: Times = field(init=False)

    def __post_init__(self) -> None:
        self.ttft, self.itl = Times(self.clock), Times(self.clock)

    def load(self) -> Load:
        return Load(self.running, self.waiting, self.ttft.p99(), self.itl.p99())


@dataclass
class Live:
    """One live request. It waits until its first token, then it runs; a reply that is no stream runs from its beginning.

    What the objective is about is a request's mean time between tokens, which is known at its end.
    """

    traffic: Traffic
    is_stream: bool
    began_at: float
    first_at: float | None = None
    last_at: float = 0.0
    gaps: int = 0

    def token(self) -> None:
        """A piece of the stream arrived."""
        now = self.traffic.clock()
        if self.first_at is None:
            self.first_at = now
            self.traffic.ttft.add(now - self.began_at)
            self.traffic.waiting -= 1
            self.traffic.running += 1
            self.traffic.changed()
        else:
            self.gaps += 1
        self.last_at = now

    def end(self) -> None:
        if self.is_stream and self.first_at is None:
            self.traffic.waiting -= 1
        else:
            self.traffic.running -= 1
        if self.first_at is not None and self.gaps:
            self.traffic.itl.add((self.last_at - self.first_at) / self.gaps)


@dataclass
class Figures:
    """The live traffic of this process by instance. `changed` is called when a request comes, and when it gets its first token."""

    clock: Callable[[], float] = time.monotonic
    changed: Callable[[], None] = lambda: None
    by_instance: dict[int, Traffic] = field(default_factory=dict)

    @contextmanager
    def request(self, instance_id: int, *, is_stream: bool) -> Iterator[Live]:
        """A live request on an instance, counted inside of the block."""
        traffic = self.by_instance.setdefault(instance_id, Traffic(self.clock, self._changed))
        if is_stream:
            traffic.waiting += 1
        else:
            traffic.running += 1
        live = Live(traffic, is_stream, self.clock())
        self.changed()
        try:
            yield live
        finally:
            live.end()

    def _changed(self) -> None:
        self.changed()

    def in_flight(self, instance_id: int) -> int:
        traffic = self.by_instance.get(instance_id)
        return 0 if traffic is None else traffic.running + traffic.waiting

    def loads(self) -> dict[int, Load]:
        """What presence writes four times a second."""
        return {instance_id: traffic.load() for instance_id, traffic in self.by_instance.items()}
