"""Group commits: what ended is stored within 50 ms or 64 results, together with the leases that it closes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog
from psycopg import Error

from scheduler.queue.results import Results
from scheduler.queue.work import Commit, Finished, Returned
from slackwater.telemetry import REQUESTS_HANDED_BACK, REQUESTS_STORED

log = structlog.get_logger()
MOST_RESULTS: Final = 64
MOST_SECONDS: Final = 0.05
AGAIN_SECONDS: Final = 0.5


@dataclass
class Outgoing:
    """What waits to be stored. Nothing leaves it before the database has committed it."""

    results: Results
    finished: list[Finished] = field(default_factory=list)
    closed: list[UUID] = field(default_factory=list)
    returned: list[Returned] = field(default_factory=list)
    _some: asyncio.Event = field(default_factory=asyncio.Event)
    _full: asyncio.Event = field(default_factory=asyncio.Event)
    _ends_at: float = float("inf")
    _committing: bool = False

    @property
    def is_empty(self) -> bool:
        """Everything that ended is committed."""
        return not (self.finished or self.closed or self._committing)

    def finish(self, finished: Finished) -> None:
        self.finished.append(finished)
        self._some.set()
        if len(self.finished) >= MOST_RESULTS:
            self._full.set()

    def close(self, token: UUID, returned: list[Returned]) -> None:
        """Close a lease, handing back `returned`, after the results that were finished before."""
        self.closed.append(token)
        self.returned.extend(returned)
        self._some.set()

    def end(self, within_seconds: float) -> None:
        """Store what is there and stop; what the database does not take within this time is left to the leases, and is run again."""
        self._ends_at = time.monotonic() + within_seconds
        self._some.set()
        self._full.set()

    async def run(self) -> None:
        """Commit until ended. A commit that fails is tried again, until told to end: only the database can make it stored."""
        while True:
            await self._some.wait()
            if not self._is_ending:
                await self._wait_for_more()
            await self._flush()
            if self._is_ending and not (self.finished or self.closed):
                return

    @property
    def _is_ending(self) -> bool:
        return self._ends_at < float("inf")

    async def _wait_for_more(self) -> None:
        try:
            await asyncio.wait_for(self._full.wait(), MOST_SECONDS)
        except TimeoutError:
            return

    async def _flush(self) -> None:
        commit = Commit(self.finished[:MOST_RESULTS], (), ())
        rest = self.finished[MOST_RESULTS:]
        if not rest:
            commit = Commit(self.finished, self.closed, self.returned)
            self.closed, self.returned = [], []
        self.finished = rest
        if not rest:
            self._some.clear()
            self._full.clear()
        if not commit.is_empty:
            self._committing = True
            await self._commit(commit)
            self._committing = False

    async def _commit(self, commit: Commit) -> None:
        while True:
            try:
                stored = await self.results.commit(commit)
            except Error as error:
                log.warning("results.not_stored", error=type(error).__name__, results=len(commit.finished))
                if time.monotonic() > self._ends_at:
                    return
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            _count(commit, stored)
            return


def _count(commit: Commit, stored: set[tuple[int, int]]) -> None:
    for finished in commit.finished:
        won = (finished.request.batch_id, finished.request.line) in stored
        REQUESTS_STORED.labels(finished.outcome.state.value if won else "late").inc()
    if commit.returned:
        REQUESTS_HANDED_BACK.labels("handed_back").inc(sum(r.n for r in commit.returned))
