"""Batch requests without end, none of them lost or run twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from scheduler.simulator.iteration import Sequence


@dataclass
class Backlog:
    """Batch requests without end. What was taken is finished, in flight, or comes back first."""

    source: Iterator[tuple[int, int]]
    first_id: int = 1_000_000_000
    returned: deque[tuple[int, int, int]] = field(default_factory=deque)
    taken: int = 0
    finished: set[int] = field(default_factory=set)

    def take(self) -> tuple[int, int, int]:
        """(id, prompt, output) of the next request."""
        if self.returned:
            return self.returned.popleft()
        self.taken += 1
        prompt, output = next(self.source)
        return self.first_id + self.taken, prompt, output

    def give_back(self, s: Sequence) -> None:
        self.returned.append((s.id, s.prompt, s.output))

    def finish(self, s: Sequence) -> None:
        """A request is done; twice is a fault of the simulator."""
        assert s.id not in self.finished
        self.finished.add(s.id)
