"""Celery's beat, with a bound on what waits: while no worker runs, expired messages would fill Redis."""

from __future__ import annotations

from typing import Any, Final

from celery import Celery
from celery.beat import ScheduleEntry, Scheduler

MOST_WAITING: Final = 100


class BoundedScheduler(Scheduler):  # type: ignore[misc]
    """Keeps its schedule in memory, and says nothing while a hundred messages wait already."""

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Publish one "look now", unless nobody listens."""
        if waiting(self.app) < MOST_WAITING:
            super().apply_entry(entry, producer=producer)


def waiting(app: Celery) -> int:
    """Messages in the queue; 0 while Redis does not answer, or has no such queue."""
    with app.connection_or_acquire() as connection:
        try:
            found = connection.default_channel.queue_declare(app.conf.task_default_queue, passive=True)
        except (*connection.connection_errors, *connection.channel_errors):
            return 0
    return int(found.message_count)
