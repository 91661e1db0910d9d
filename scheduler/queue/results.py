"""Storing what ended and handing back what did not, on a connection that commits synchronously."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import stamina
from psycopg import AsyncConnection, errors
from psycopg.rows import TupleRow

from scheduler.queue import storing
from scheduler.queue.work import Commit, Finished
from slackwater.lifecycle import Outcome
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
        connection, release = await self.link.get(), _release(commit)
        if not commit.finished:
            await connection.execute(storing.RELEASE, {"tokens": []} | release, binary=True)
            return set()
        values = self._store(commit.finished) | release
        if await self._whole(connection, commit, values):
            return {(f.request.batch_id, f.request.line) for f in commit.finished}
        cursor = await connection.execute(storing.STORE, values, binary=True)
        return {(batch_id, line) for batch_id, line in await cursor.fetchall()}

    async def _whole(self, connection: AsyncConnection[TupleRow], commit: Commit, values: dict[str, Any]) -> bool:
        """Store everything, as nearly every commit can. False: nothing was stored, and each line has to be asked for."""
        sums = _sums(commit.finished)
        if commit.returned or sums is None:
            return False
        tokens = list({f.request.token for f in commit.finished} | set(commit.closed))
        try:
            cursor = await connection.execute(storing.STORE_WHOLE, values | sums | {"tokens": tokens}, binary=True)
            return await cursor.fetchone() is not None
        except errors.UniqueViolation:
            return False

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


def _sums(finished: Sequence[Finished]) -> dict[str, Any] | None:
    """Counts, usage and cost of each batch, in columns; None where a batch has more than one model."""
    batches: dict[tuple[int, int], list[Finished]] = {}
    for f in finished:
        batches.setdefault((f.request.tenant_id, f.request.batch_id), []).append(f)
    of = batches.values()
    if any(f.request.model_id != parts[0].request.model_id for parts in of for f in parts):
        return None
    known = [[f.usage.cached_tokens for f in parts if f.usage.cached_tokens is not None] for parts in of]
    succeeded = [sum(f.outcome is Outcome.SUCCEEDED for f in parts) for parts in of]
    return {
        "sum_tenants": [tenant_id for tenant_id, _ in batches],
        "sum_batches": [batch_id for _, batch_id in batches],
        "sum_models": [parts[0].request.model_id for parts in of],
        "succeeded": succeeded,
        "failed": [len(parts) - n for parts, n in zip(of, succeeded, strict=True)],
        "sum_prompts": [sum(f.usage.prompt_tokens or 0 for f in parts) for parts in of],
        "sum_completions": [sum(f.usage.completion_tokens or 0 for f in parts) for parts in of],
        "sum_cacheds": [sum(cached) for cached in known],
        "cached_known": [len(cached) for cached in known],
        "sum_costs": [sum(f.cost for f in parts) for parts in of],
    }
