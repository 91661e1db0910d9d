"""Storing what ended and handing back what did not, on a connection that commits synchronously."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import stamina
from psycopg import errors

from scheduler.queue import statements
from scheduler.queue.work import Commit, Finished
from slackwater.storage.connections import Link

RACED = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable, errors.QueryCanceled)


@dataclass
class Results:
    """The group commits of one worker."""

    link: Link
    worker_id: int
    instance_id: int

    @classmethod
    def on(cls, dsn: str, worker_id: int, instance_id: int) -> Self:
        return cls(Link(dsn), worker_id, instance_id)

    @stamina.retry(on=RACED, attempts=20, timeout=60.0)
    async def commit(self, commit: Commit) -> set[tuple[int, int]]:
        """Store, hand back and close in one statement; returns the (batch id, line) pairs this call stored.

        A deadlock or a timeout is tried again and loses nothing: every part is guarded by a primary key or a token.
        """
        connection = await self.link.get()
        if not commit.finished:
            await connection.execute(statements.RELEASE, {"tokens": []} | _release(commit), binary=True)
            return set()
        cursor = await connection.execute(
            statements.STORE, self._store(commit.finished) | _release(commit), binary=True
        )
        return {(batch_id, line) for batch_id, line in await cursor.fetchall()}

    def _store(self, finished: Sequence[Finished]) -> dict[str, Any]:
        return {
            "worker_id": self.worker_id,
            "instance_id": self.instance_id,
            "tokens": [f.request.token for f in finished],
            "tenants": [f.request.tenant_id for f in finished],
            "batches": [f.request.batch_id for f in finished],
            "models": [f.request.model_id for f in finished],
            "lines": [f.request.line for f in finished],
            "outcomes": [f.outcome.value for f in finished],
            "https": [f.http or 0 for f in finished],
            "prompts": [f.usage.prompt_tokens or 0 for f in finished],
            "completions": [f.usage.completion_tokens or 0 for f in finished],
            "cacheds": [-1 if f.usage.cached_tokens is None else f.usage.cached_tokens for f in finished],
            "costs": [f.cost for f in finished],
            "attempts": [f.request.attempts + 1 for f in finished],
            "bodies": [f.line for f in finished],
        }

    async def close(self) -> None:
        await self.link.close()


def _release(commit: Commit) -> dict[str, Any]:
    returned = commit.returned
    return {
        "closed": list(commit.closed),
        "back_tokens": [r.token for r in returned],
        "firsts": [r.first for r in returned],
        "ns": [r.n for r in returned],
        "delays": [r.delay_seconds for r in returned],
        "back_attempts": [r.attempts for r in returned],
        "deferrals": [r.deferrals for r in returned],
    }
