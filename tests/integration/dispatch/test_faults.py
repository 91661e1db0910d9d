"""Senders that die or race, and receivers that hang, drip, flood or live where nobody may go."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scheduler.dispatch.claims import Limits
from slackwater.settings import Settings
from slackwater.webhooks.sender import REPLY_BYTES, Sender
from tests.integration.dispatch.conftest import MASTER_KEY, Place, settings_for
from tests.integration.dispatch.receiver import Receiver

PROCESS = "from scheduler.dispatch.loop import main; from slackwater.settings import Settings; main(Settings())"
DELIVERED = "SELECT count(*) FROM delivery WHERE state = 1"


def _settings(**more: Any) -> Settings:
    """For tests of the sender alone, which has no database."""
    return settings_for("postgresql://nowhere", **more)


async def _start_process(place: Place) -> asyncio.subprocess.Process:
    environment = os.environ | {
        "SLACKWATER_DATABASE_URL": place.dsn,
        "SLACKWATER_MASTER_KEY": MASTER_KEY,
        "SLACKWATER_WEBHOOK_ALLOW": '["127.0.0.1/32"]',
        "SLACKWATER_WEBHOOK_ALLOW_HTTP": "true",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return await asyncio.create_subprocess_exec(sys.executable, "-c", PROCESS, env=environment)


def _hanging() -> tuple[asyncio.Event, Callable[[web.Request], Awaitable[web.StreamResponse]]]:
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    return release, hang


async def test_a_killed_sender_loses_nothing(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hook")
    release, receiver.answers["/hook"] = _hanging()
    place.finish()
    process = await _start_process(place)
    await receiver.wait_for(1)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    release.set()
    assert place.fetch("SELECT state, attempts, token IS NOT NULL FROM delivery") == [(0, 0, True)]

    place.make_due()
    async with place.dispatching():
        first, again = await receiver.wait_for(2)
        await place.until(DELIVERED, 1)

    assert (first.event_id, first.body) == (again.event_id, again.body)


async def test_a_process_ends_at_sigterm_and_hands_back_what_hangs(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hook")
    release, receiver.answers["/hook"] = _hanging()
    place.finish()
    process = await _start_process(place)
    await receiver.wait_for(1)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        assert await process.wait() == 0
    release.set()

    assert place.fetch("SELECT state, attempts, token, next_at <= now() FROM delivery") == [(0, 0, None, True)]


async def test_two_senders_deliver_each_once(place: Place, receiver: Receiver) -> None:
    for path in ("/a", "/b", "/c", "/d"):
        await place.subscribe(receiver.url + path)
    place.finish(100)
    async with place.dispatching(Limits(in_all=30)), place.dispatching(Limits(in_all=30)):
        await place.until(DELIVERED, 400)

    assert len(receiver.received) == 400
    assert set(receiver.counts().values()) == {4}
    assert place.fetch("SELECT count(*), max(n) FROM delivery_attempt") == [(400, 1)]


async def test_an_outcome_under_a_lost_lease_changes_nothing(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hook")
    release, receiver.answers["/hook"] = _hanging()
    place.finish()
    async with place.dispatching():
        await receiver.wait_for(1)
        place.rows.execute("UPDATE delivery SET token = gen_random_uuid(), next_at = now() + interval '1 hour'")
        release.set()
        await place.subscribe(receiver.url + "/later")
        place.finish()
        await place.until("SELECT count(*) FROM delivery_attempt", 2)

    assert place.fetch("SELECT state, attempts FROM delivery ORDER BY id LIMIT 1") == [(0, 0)]


async def test_a_receiver_that_hangs_delays_nobody(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hangs", event_types=("batch.failed",))
    await place.subscribe(receiver.url + "/well")
    release, receiver.answers["/hangs"] = _hanging()
    place.finish(200, "batch.failed")
    async with place.dispatching(Limits(in_all=20, per_endpoint=5)):
        await receiver.wait_for(200, "/well", seconds=4.5)
        await place.until(DELIVERED, 200)
        assert len(receiver.at("/hangs")) == 5
        release.set()


async def test_one_tenant_cannot_take_every_slot(
    place: Place, receiver: Receiver, another_tenant: Callable[[], Place]
) -> None:
    other = another_tenant()
    release, hang = _hanging()
    for n in range(8):
        receiver.answers[f"/hangs/{n}"] = hang
        await place.subscribe(receiver.url + f"/hangs/{n}")
    await other.subscribe(receiver.url + "/well")
    place.finish(5)
    other.finish(20)
    async with place.dispatching(Limits(in_all=20, per_tenant=10, per_endpoint=5)):
        await receiver.wait_for(20, "/well", seconds=4.5)
        assert len(receiver.received) - 20 == 10
        release.set()


LOOPBACK_SPELLINGS = [
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/",
    "http://127.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://017700000001:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::]:{port}/",
    "http://[::1]:{port}/",
    "http://①②⑦.0.0.1:{port}/",
    "http://127。0。0。1:{port}/",
    "http://user@127.0.0.1:{port}/",
]


@pytest.mark.parametrize("spelling", LOOPBACK_SPELLINGS)
@pytest.mark.parametrize("allow", [(), ("10.0.0.0/8",)])
async def test_no_spelling_of_a_private_address_reaches_its_listener(
    receiver: Receiver, spelling: str, allow: tuple[str, ...]
) -> None:
    url = spelling.format(port=receiver.url.rsplit(":", 1)[1])
    async with Sender(_settings(webhook_allow=allow)) as sender:
        attempt = await sender.post(url, {}, b"{}")

    assert receiver.received == []
    assert attempt.reply.http is None
    assert attempt.reply.error in ("blocked_address", "dns", "invalid_url")


async def test_a_name_that_leads_to_a_private_address_is_blocked_at_connect(place: Place, receiver: Receiver) -> None:
    place.settings.webhook_allow = ("10.0.0.0/8",)
    await place.subscribe(receiver.url.replace("127.0.0.1", "localhost"))
    async with place.dispatching():
        place.finish()
        await place.until("SELECT count(*) FROM delivery_attempt", 1)

    assert place.fetch("SELECT error, http FROM delivery_attempt") == [("blocked_address", None)]
    assert receiver.received == []


async def test_a_proxy_in_the_environment_is_ignored(
    place: Place, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await place.subscribe(receiver.url)
    async with place.dispatching():
        place.finish()
        await place.until(DELIVERED, 1)


@asynccontextmanager
async def _raw(script: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A listener that reads a head and then does as `script` says, however wrong that is."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await script(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield "http://{}:{}/".format(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()


async def _drip_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4000\r\n\r\n")
    await _drip(writer, b"x")


async def _drip_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    await _drip(writer, b"x")


async def _continue_for_ever(writer: asyncio.StreamWriter) -> None:
    await _drip(writer, b"HTTP/1.1 100 Continue\r\n\r\n")


async def _drip(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.05)


async def _many_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"x-h: 1\r\n" * 200_000 + b"content-length: 0\r\n\r\n")
    await writer.drain()


async def _long_status_line(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 " + b"O" * 5_000_000 + b"\r\n\r\n")
    await writer.drain()


async def _reset_in_the_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    await writer.drain()


async def _say_nothing(writer: asyncio.StreamWriter) -> None:
    await writer.drain()


@pytest.mark.parametrize(
    ("script", "errors"),
    [
        (_drip_body, {"body_too_slow"}),
        (_drip_head, {"read_timeout"}),
        (_continue_for_ever, {"read_timeout"}),
        (_many_headers, {"broken_reply"}),
        (_long_status_line, {"broken_reply"}),
        (_reset_in_the_body, {"broken_reply", "disconnected"}),
        (_say_nothing, {"disconnected"}),
    ],
)
async def test_a_hostile_reply_ends_in_time_and_has_its_class(script: Any, errors: set[str]) -> None:
    async with _raw(script) as url, Sender(_settings(webhook_timeout_seconds=0.6)) as sender:
        attempt = await sender.post(url, {}, b"{}")

    assert attempt.reply.error in errors
    assert attempt.seconds < 2


async def test_of_200_megabytes_four_kilobytes_are_read() -> None:
    sent = 0

    async def count(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 200000000\r\ncontent-encoding: gzip\r\n\r\n")
        for _ in range(200):
            writer.write(bytes(1_000_000))
            await writer.drain()
            sent += 1

    async with _raw(count) as url, Sender(_settings()) as sender:
        attempt = await sender.post(url, {}, b"{}")

    assert attempt.reply.error is None
    assert attempt.body == bytes(REPLY_BYTES)
    assert sent < 20


def _self_signed(path: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=_self_signed(tmp_path / "receiver.pem"))
    host, port = server.sockets[0].getsockname()[:2]
    async with Sender(_settings()) as sender:
        attempt = await sender.post(f"https://{host}:{port}/", {}, b"{}")
    server.close()

    assert attempt.reply.error == "tls_verify"


async def test_nobody_listens() -> None:
    async with _raw(_say_nothing) as url:
        pass
    async with Sender(_settings()) as sender:
        attempt = await sender.post(url, {}, b"{}")

    assert attempt.reply.error == "connect"
