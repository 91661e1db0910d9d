"""How many uploads one key may have under way at once in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from slackwater.errors import TooMany


@dataclass
class Slots:
    """At most `most` of a key at once."""

    most: int
    _taken: Counter[int] = field(default_factory=Counter)

    @contextmanager
    def taken(self, key_id: int) -> Iterator[None]:
        """Hold a slot for the block.

        Raises:
            TooMany: the key holds all it may.
        """
        if self._taken[key_id] >= self.most:
            raise TooMany("This key has too many uploads under way; try again shortly.", code="too_many_uploads")
        self._taken[key_id] += 1
        try:
            yield
        finally:
            self._taken[key_id] -= 1
            if not self._taken[key_id]:
                del self._taken[key_id]
