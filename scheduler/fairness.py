"""Whose turn it is. Pure: a reading of the line in, an order out.

Rule: the tenant that was served least for its weight goes first; inside a tenant, what is pressed by its deadline, then priority, then
what the instance has just run (its prefix is warm), then the older batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

PRESSED_RATIO = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """A batch with ready work for one model. `served_tokens` is its tenant's of the last ten minutes; times are seconds."""

    tenant_id: int
    batch_id: int
    model_id: int
    priority: int
    weight: int
    served_tokens: int
    seconds_left: float
    window_seconds: float

    @property
    def is_pressed(self) -> bool:
        """Less than a fifth of its window is left."""
        return self.seconds_left < PRESSED_RATIO * self.window_seconds


def rank(line: Sequence[Place], *, since: Mapping[int, int], recent: Collection[int] = ()) -> list[Place]:
    """The line in order of turn. `since` adds tokens claimed per tenant after the reading; `recent` are batches just run here."""

    def turn(place: Place) -> tuple[float, bool, float, int, bool, int]:
        share = (place.served_tokens + since.get(place.tenant_id, 0)) / place.weight
        pressure = place.seconds_left if place.is_pressed else 0.0
        return (share, not place.is_pressed, pressure, -place.priority, place.batch_id not in recent, place.batch_id)

    return sorted(line, key=turn)
