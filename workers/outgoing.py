"""Group commits: what ended is stored within 50 ms or 64 results, together with the leases that it closes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog
from psycopg import DataError, Error, IntegrityError, ProgrammingError

from scheduler.queue.results import Results
from scheduler.queue.work import Commit, Finished, Returned
from slackwater.lifecycle import Outcome
from slackwater.reader.output_line import error_line
from slackwater.reader.usage import UNKNOWN
from slackwater.telemetry import REQUESTS_HANDED_BACK, REQUESTS_STORED
from slackwater.wire.lines import line_id

log = structlog.get_logger()
MOST_RESULTS: Final = 64
MOST_BYTES: Final = 16 << 20
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
        n = fitting([len(f.line) for f in self.finished])
        commit = Commit(self.finished[:n], (), ())
        rest = self.finished[n:]
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
        """Try until it is stored. What the database refuses for its content is looked for by halves, and ends as an error line."""
        while True:
            try:
                stored = await self.results.commit(commit)
            except Error as error:
                log.warning("results.not_stored", error=type(error).__name__, results=len(commit.finished))
                if isinstance(error, DataError | IntegrityError | ProgrammingError) and commit.finished:
                    return await self._commit_by_halves(commit)
                if time.monotonic() > self._ends_at:
                    return None
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            _count(commit, stored)
            return None

    async def _commit_by_halves(self, commit: Commit) -> None:
        """The results in two parts, or the one result as an error; the leases close with the last."""
        middle = len(commit.finished) // 2
        if middle:
            await self._commit(Commit(commit.finished[:middle], (), ()))
            await self._commit(Commit(commit.finished[middle:], commit.closed, commit.returned))
        elif commit.finished[0].outcome is Outcome.SUCCEEDED:
            await self._commit(Commit((unstorable(commit.finished[0]),), commit.closed, commit.returned))
        else:
            await self._commit(Commit((), commit.closed, [*commit.returned, _back(commit.finished[0])]))


def fitting(sizes: Sequence[int]) -> int:
    """How many of the first lines go into one commit: at most 64, and 16 MiB but for a first one that is longer."""
    total = 0
    for n, size in enumerate(sizes[:MOST_RESULTS]):
        total += size
        if n and total > MOST_BYTES:
            return n
    return min(len(sizes), MOST_RESULTS)


def unstorable(finished: Finished) -> Finished:
    """The error line of an answer that the database does not take."""
    request = finished.request
    where = line_id(request.batch_id, request.line)
    line = error_line(where, request.custom_id, "server_error", "The answer could not be stored.")
    return Finished(request, Outcome.FAILED, None, UNKNOWN, 0, line)


def _back(finished: Finished) -> Returned:
    request = finished.request
    return Returned(request.token, request.position, 1, 60.0, request.attempts, min(request.deferrals + 1, 30_000))


def _count(commit: Commit, stored: set[tuple[int, int]]) -> None:
    for finished in commit.finished:
        won = (finished.request.batch_id, finished.request.line) in stored
        REQUESTS_STORED.labels(finished.outcome.state.value if won else "late").inc()
    REQUESTS_HANDED_BACK.inc(sum(returned.n for returned in commit.returned))
