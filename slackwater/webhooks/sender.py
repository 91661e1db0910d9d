"""One POST to a receiver that may be hostile: where it may connect, how long it may take, how much of its reply is read.

It stands in the kernel because two processes send: the dispatcher, and the API for a test event.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

import aiohttp
from yarl import URL

from slackwater.settings import Settings
from slackwater.webhooks.addresses import Cidr, allow_list, is_reachable
from slackwater.webhooks.schedule import GONE, Reply, retry_after, wish

CONNECT_SECONDS: Final = 5.0
REPLY_BYTES: Final = 4096
KEEPALIVE_SECONDS: Final = 30.0
DNS_CACHE_SECONDS: Final = 10
BLOCKED: Final = "blocked_address"


class BlockedAddress(OSError):
    """The gate refused a socket address; nothing was sent to it."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, BLOCKED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as it is recorded: how it ended, how long it took, and the first `REPLY_BYTES` of the reply's body."""

    reply: Reply
    seconds: float
    body: bytes


class Sender:
    """A session of keep-alive connections to receivers. Use as an async context manager; `post` may run many times at once."""

    def __init__(self, settings: Settings) -> None:
        self._allow = allow_list(settings.webhook_allow)
        self._total_seconds = settings.webhook_timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Sender:
        self._session = aiohttp.ClientSession(
            connector=_connector(self._allow),
            timeout=aiohttp.ClientTimeout(
                total=self._total_seconds, connect=min(CONNECT_SECONDS, self._total_seconds), ceil_threshold=60
            ),
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        """Send once. Never raises for what a receiver or a network does; ends within the total timeout, the reply's body included.

        A reply counts when it is complete, or when `REPLY_BYTES` of its body are read: the rest is not waited for.
        """
        started = monotonic()
        reply, kept = await self._try(url, headers, body)
        return Attempt(reply, monotonic() - started, kept)

    async def _try(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[Reply, bytes]:
        if self._session is None:
            raise RuntimeError("the sender is not open")
        status: int | None = None
        try:
            request = self._session.post(URL(url), data=body, headers=headers, allow_redirects=False)
            async with request as response:
                status = response.status
                kept = await _first_bytes(response)
                return _reply(status, response.headers), kept
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return Reply(status, error_class(error, has_status=status is not None)), b""


def _connector(allow: tuple[Cidr, ...]) -> aiohttp.TCPConnector:
    def gate(info: tuple[Any, ...]) -> socket.socket:
        """Called with the final address of every connect, literals and each of a name's addresses included."""
        family, kind, protocol, _, address = info
        if not is_reachable(str(address[0]).partition("%")[0], int(address[1]), allow):
            raise BlockedAddress
        return socket.socket(family, kind, protocol)

    return aiohttp.TCPConnector(
        socket_factory=gate,
        limit=0,
        keepalive_timeout=KEEPALIVE_SECONDS,
        ttl_dns_cache=DNS_CACHE_SECONDS,
    )


async def _first_bytes(response: aiohttp.ClientResponse) -> bytes:
    """Up to `REPLY_BYTES` of the body, never decompressed. A longer body costs its connection."""
    kept = bytearray()
    while len(kept) < REPLY_BYTES:
        piece = await response.content.read(REPLY_BYTES - len(kept))
        if not piece:
            return bytes(kept)
        kept += piece
    if not response.content.at_eof():
        response.close()
    return bytes(kept)


def _reply(status: int, headers: Mapping[str, str]) -> Reply:
    return Reply(status, status_class(status), retry_after(headers, datetime.now(UTC)), wish(headers))


def status_class(status: int) -> str | None:
    """The error class of an HTTP status; None when it accepts."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return "redirect"
    if status == GONE:
        return "gone"
    return "http_5xx" if status >= 500 else "http_4xx"


def error_class(error: BaseException, *, has_status: bool) -> str:
    """The class of a failed attempt, for the delivery's log and the metric label.

    `has_status`: the reply's head had come, so that only its body failed.
    """
    if isinstance(error, (aiohttp.ConnectionTimeoutError, aiohttp.ServerTimeoutError)) and not has_status:
        return "connect_timeout"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return "body_too_slow" if has_status else "read_timeout"
    if isinstance(error, aiohttp.ClientSSLError):
        return "tls_verify"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns"
    if isinstance(error, aiohttp.ClientConnectorError):
        return BLOCKED if BLOCKED in str(error.os_error) else "connect"
    if isinstance(error, (aiohttp.InvalidURL, UnicodeError)):
        return "invalid_url"
    if isinstance(error, (aiohttp.ClientPayloadError, aiohttp.ClientResponseError)):
        return "broken_reply"
    return "disconnected"
