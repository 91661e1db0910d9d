"""One sender: how many deliveries it holds, and the two steps that its loops repeat (claim and send; record)."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from time import monotonic
from typing import Final

import structlog

from scheduler.dispatch import claims
from scheduler.dispatch.claims import Claim, Limits, Outcome
from slackwater.errors import Misconfigured
from slackwater.sealing import Sealer, sealer_from
from slackwater.settings import Settings
from slackwater.storage.connections import Link
from slackwater.telemetry import DELIVERIES
from slackwater.webhooks import signing
from slackwater.webhooks.schedule import Reply
from slackwater.webhooks.sender import Attempt, Sender

log = structlog.get_logger()

DROP_EVERY_SECONDS: Final = 5.0
# A claim costs the database the same for one slot as for many: under load it waits until some are free.
CLAIM_EVERY_SECONDS: Final = 0.02


class Dispatcher:
    """Claims, sends and records. `claim_step` and `record_step` may run at the same time, each once; they use a connection each.

    A claim leaves `held` only when its outcome is committed, so that a database that is away stops claiming, and loses nothing.
    """

    def __init__(self, settings: Settings, sender: Sender, limits: Limits | None = None) -> None:
        self.limits: Final = limits or Limits()
        self.held: dict[int, Claim] = {}
        self.finished = asyncio.Event()
        self._sender = sender
        self._sealer: Sealer = sealer_from(settings)
        self._lease = claims.lease_seconds(settings.webhook_timeout_seconds)
        self._claiming, self._recording = Link(settings.dsn), Link(settings.dsn)
        self._sending: set[asyncio.Task[None]] = set()
        self._outcomes: list[Outcome] = []
        self._rng = random.SystemRandom()
        self._dropped_at = self._claimed_at = 0.0

    async def claim_step(self) -> int:
        """Fill the free slots with due deliveries and begin to send them. Returns how many."""
        await self._drop_sometimes()
        await asyncio.sleep(self._claimed_at + CLAIM_EVERY_SECONDS - monotonic())
        free = self.limits.in_all - len(self.held)
        if free <= 0:
            return 0
        self._claimed_at = monotonic()
        claimed = await claims.claim(await self._claiming.get(), free, self.limits, self._lease)
        for claim in claimed:
            self._begin(claim)
        return len(claimed)

    async def record_step(self) -> int:
        """Commit the outcomes that have gathered, all in one transaction. Returns how many."""
        batch = list(self._outcomes)
        if not batch:
            return 0
        counted = await claims.record(await self._recording.get(), batch)
        if counted < len(batch):
            log.warning("deliveries.lost_lease", lost=len(batch) - counted)
        del self._outcomes[: len(batch)]
        for outcome in batch:
            self.held.pop(outcome.claim.id, None)
            DELIVERIES.labels(outcome.attempt.reply.error or "delivered").inc()
        return len(batch)

    async def settle(self, grace_seconds: float) -> None:
        """Let what is in flight end within the grace, record it, and hand the rest back to be sent again."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=grace_seconds)
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self.record_step()
        if self.held:
            await claims.hand_back(await self._recording.get(), list(self.held.values()))
            self.held.clear()

    async def close(self) -> None:
        await self._claiming.close()
        await self._recording.close()

    def _begin(self, claim: Claim) -> None:
        self.held[claim.id] = claim
        task = asyncio.create_task(self._send(claim))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, claim: Claim) -> None:
        started_at = datetime.now(UTC)
        try:
            attempt = await self._attempt(claim, started_at)
        except Exception as error:
            log.exception("delivery.broke", error=type(error).__name__)
            attempt = _failed("internal")
        self._outcomes.append(claims.outcome_of(claim, started_at, attempt, self._rng))
        self.finished.set()

    async def _attempt(self, claim: Claim, started_at: datetime) -> Attempt:
        """URL and secrets are opened here, so that a row that does not open fails alone, visibly."""
        endpoint = claim.endpoint_public_id
        try:
            url = self._sealer.unseal(claim.url, signing.url_context(claim.tenant_id, endpoint)).decode()
            context = signing.secret_context(claim.tenant_id, endpoint)
            secrets = [self._sealer.unseal(sealed, context).decode() for sealed in claim.secrets]
        except Misconfigured:
            return _failed("unsealable")
        if not secrets:
            return _failed("no_secret")
        headers = signing.headers(claim.event_id, claim.body, secrets, started_at)
        return await self._sender.post(url, headers, claim.body)

    async def _drop_sometimes(self) -> None:
        if monotonic() - self._dropped_at < DROP_EVERY_SECONDS:
            return
        await claims.drop(await self._claiming.get())
        self._dropped_at = monotonic()


def _failed(error: str) -> Attempt:
    return Attempt(Reply(None, error), 0.0, b"")
