"""Claiming, on a connection of its own that commits asynchronously: a claim lost in a crash is a claim that never was."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID, uuid4

from psycopg.rows import TupleRow

from scheduler.fairness import Place
from scheduler.queue import statements
from scheduler.queue.work import Claim, Request
from slackwater.pricing import Price
from slackwater.storage.connections import Link


class Vanished(Exception):
    """The bytes of a body are gone: the batch has ended, and its input was purged, since the claim."""


@dataclass
class Claims:
    """Takes requests off the queue for one worker."""

    link: Link
    worker_id: int
    lease_seconds: float

    @classmethod
    def on(cls, dsn: str, worker_id: int, lease_seconds: float) -> Self:
        return cls(Link(dsn, asynchronous_commit=True), worker_id, lease_seconds)

    async def line(self, model_ids: Sequence[int]) -> list[Place]:
        """What is ready for these models, unranked."""
        cursor = await (await self.link.get()).execute(statements.LINE, {"models": list(model_ids)}, binary=True)
        return [Place(*row) for row in await cursor.fetchall()]

    async def claim(self, model_id: int, batch_ids: Sequence[int], *, most: int, retries: bool = True) -> Claim | None:
        """Take up to `most` requests of the first of `batch_ids` that has any; None when none has.

        Skips over ranges in which everything is answered, or whose batch has ended since, dropping their tokens.
        """
        while True:
            token = uuid4()
            rows = await self._take(token, model_id, batch_ids, most, retries)
            if rows:
                with suppress(Vanished):
                    return await self._claim_of(token, model_id, rows)
            dropped = await (await self.link.get()).execute(
                "DELETE FROM lease WHERE token = %(token)b RETURNING token", {"token": token}
            )
            if await dropped.fetchone() is None:
                return None

    async def mark_alone(self, token: UUID) -> bool:
        """Say that nothing else of ours is in the engine while this request runs. False: the lease is lost."""
        cursor = await (await self.link.get()).execute(statements.MARK_ALONE, {"token": token})
        return cursor.rowcount == 1

    async def _take(
        self, token: UUID, model_id: int, batch_ids: Sequence[int], most: int, retries: bool
    ) -> list[TupleRow]:
        cursor = await (await self.link.get()).execute(
            statements.CLAIM,
            {
                "batches": list(batch_ids),
                "model_id": model_id,
                "most": most,
                "retries": retries,
                "token": token,
                "worker_id": self.worker_id,
                "lease_seconds": self.lease_seconds,
            },
            binary=True,
        )
        return await cursor.fetchall()

    async def _claim_of(self, token: UUID, model_id: int, rows: list[TupleRow]) -> Claim:
        requests = [request for row in rows for request in await self._requests_of(token, model_id, row)]
        requests.sort(key=lambda request: request.position)
        _, batch_id, first, n, rescues, deaths, *_ = rows[0]
        return Claim(token, batch_id, first, n, rescues, deaths, requests)

    async def _requests_of(self, token: UUID, model_id: int, row: TupleRow) -> list[Request]:
        """The requests whose bodies begin in one chunk."""
        tenant_id, batch_id, _, _, _, _, attempts, deferrals, endpoint, file_id, *prices = row[:13]
        chunk, places, custom_ids, low, data = row[13:]
        price, where = Price(*prices), {"tenant_id": tenant_id, "file_id": file_id, "chunk": chunk}
        bodies = (
            await self._apart(places, where) if data is None else [data[s - low : s - low + n] for *_, s, n in places]
        )
        requests: list[Request] = []
        for (position, line, est_tokens, _, length), custom_id, body in zip(places, custom_ids, bodies, strict=True):
            whole = body if len(body) == length else await self._whole(body, where | {"length": length})
            if len(whole) < length:
                raise Vanished
            requests.append(Request(
                token, tenant_id, batch_id, model_id, position, line, custom_id, endpoint, whole, est_tokens, attempts, deferrals, price,
            ))  # fmt: skip
        return requests

    async def _apart(self, places: Sequence[Sequence[int]], where: dict[str, Any]) -> list[bytes]:
        values = where | {"starts": [place[3] for place in places], "lengths": [place[4] for place in places]}
        cursor = await (await self.link.get()).execute(statements.BODIES, values, binary=True)
        bodies = [body for (body,) in await cursor.fetchall()]
        if len(bodies) < len(places):
            raise Vanished
        return bodies

    async def _whole(self, head: bytes, where: dict[str, Any]) -> bytes:
        cursor = await (await self.link.get()).execute(statements.BODY_TAIL, where, binary=True)
        return (head + b"".join([bytes(data) async for (data,) in cursor]))[: where["length"]]

    async def close(self) -> None:
        await self.link.close()
