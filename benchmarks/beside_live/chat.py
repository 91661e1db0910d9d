"""A client that streams chats through the gateway at the times of a phase, and notes when every token came."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from benchmarks.beside_live.load import chat_body
from scheduler.simulator.traces import Arrival

PATIENCE_SECONDS: Final = 300.0


@dataclass
class Heard:
    """One chat, in seconds from the begin of its phase. `failed` says why there was no whole answer."""

    sent_at: float
    token_at: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    failed: str | None = None

    @property
    def first_token_seconds(self) -> float | None:
        return self.token_at[0] - self.sent_at if self.token_at else None

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.token_at, self.token_at[1:], strict=False)]

    def tokens(self, begin: float, end: float) -> int:
        """Its tokens as the engine counts them: those of the prompt with the first of the answer."""
        tokens = sum(1 for at in self.token_at if begin <= at < end)
        is_begun = bool(self.token_at) and begin <= self.token_at[0] < end
        return tokens + (self.prompt_tokens if is_begun else 0)


async def replay(url: str, key: str, chats: Sequence[Arrival], salt: str, begun: float) -> list[Heard]:
    """Send every chat at its time after `begun` (monotonic), whatever became of those before it."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    headers = {"Authorization": f"Bearer {key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, timeout=timeout, headers=headers, connector=connector) as session:
        sending = (_chat(session, a, chat_body(a, n, salt), begun) for n, a in enumerate(chats))
        return await asyncio.gather(*sending)


async def _chat(session: aiohttp.ClientSession, arrival: Arrival, body: dict[str, Any], begun: float) -> Heard:
    await asyncio.sleep(max(0.0, begun + arrival.at - time.monotonic()))
    heard = Heard(time.monotonic() - begun)
    try:
        async with session.post("/v1/chat/completions", json=body) as reply:
            if reply.status != 200:
                heard.failed = f"{reply.status} {(await reply.text())[:200]}"
                return heard
            async for line in reply.content:
                hear(heard, line, time.monotonic() - begun)
    except (aiohttp.ClientError, TimeoutError) as error:
        heard.failed = type(error).__name__
    return heard


def hear(heard: Heard, line: bytes, now: float) -> None:
    """One line of the stream. The opening event, which only names the role, is not a token; nor are the usage and the end."""
    if not line.startswith(b"data: {"):
        return
    event = json.loads(line[6:])
    if "error" in event:
        heard.failed = str(event["error"])[:200]
    elif event.get("usage"):
        heard.prompt_tokens = event["usage"]["prompt_tokens"]
    elif event["choices"] and "role" not in event["choices"][0]["delta"]:
        heard.token_at.append(now)
