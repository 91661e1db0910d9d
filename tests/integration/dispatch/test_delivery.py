"""An event reaches its subscribers: signed, at least once, with the same id and bytes on every attempt."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import openai
from aiohttp import web
from standardwebhooks import Webhook

from slackwater.webhooks import deliveries, endpoints
from tests.integration.dispatch.conftest import Place
from tests.integration.dispatch.receiver import Receiver, answer

ALL_STATES = "SELECT coalesce(array_agg(state ORDER BY id), '{}') FROM delivery"


async def test_an_event_is_delivered_and_both_libraries_verify_it(place: Place, receiver: Receiver) -> None:
    endpoint = await place.subscribe(receiver.url + "/hook")
    async with place.dispatching():
        place.finish()
        (post,) = await receiver.wait_for(1)
        await place.until(ALL_STATES, [1])

    secret = place.secrets[endpoint]
    Webhook(secret).verify(post.body, post.headers)
    client = openai.OpenAI(api_key="none")
    event = client.webhooks.unwrap(post.body, post.headers, secret=secret)
    client.close()
    assert (event.type, event.id) == ("batch.completed", post.event_id)
    assert json.loads(post.body)["data"] == {"id": "batch_1"}
    assert post.headers["content-type"] == "application/json"
    assert place.fetch("SELECT body FROM event")[0][0] == post.body
    assert place.fetch("SELECT n, http, error, reply, delivered_at IS NOT NULL FROM delivery_attempt, delivery") == [
        (1, 200, None, b"ok", True)
    ]


async def test_a_retry_has_the_same_id_and_bytes_and_its_own_timestamp(place: Place, receiver: Receiver) -> None:
    endpoint = await place.subscribe(receiver.url + "/hook")
    receiver.answers["/hook"] = answer(503)
    async with place.dispatching():
        place.finish()
        await receiver.wait_for(1)
        await place.until("SELECT attempts FROM delivery", 1)
        second = time.time() // 1 + 1
        await asyncio.to_thread(_wait_for_the_clock, second)
        del receiver.answers["/hook"]
        place.make_due()
        first, again = await receiver.wait_for(2)
        await place.until(ALL_STATES, [1])

    assert (first.event_id, first.body) == (again.event_id, again.body)
    assert int(again.headers["webhook-timestamp"]) > int(first.headers["webhook-timestamp"])
    Webhook(place.secrets[endpoint]).verify(again.body, again.headers)
    assert place.fetch("SELECT n, http, error FROM delivery_attempt ORDER BY n") == [
        (1, 503, "http_5xx"),
        (2, 200, None),
    ]


def _wait_for_the_clock(second: float) -> None:
    while time.time() < second:
        time.sleep(second - time.time())


async def test_a_failure_waits_as_the_schedule_says_and_ends_after_ten(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hook")
    receiver.answers["/hook"] = answer(500)
    async with place.dispatching():
        place.finish()
        for n in range(1, 11):
            await receiver.wait_for(n)
            await place.until("SELECT attempts FROM delivery", n)
            if n == 4:
                wait = place.fetch("SELECT extract(epoch FROM next_at - now())::float8 FROM delivery")[0][0]
                assert 0.8 * 7200 - 60 < wait <= 1.2 * 7200
            place.make_due()
        await place.until(ALL_STATES, [2])

    assert len(receiver.received) == 10


async def test_retry_after_is_honoured(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hook")
    receiver.answers["/hook"] = answer(429, Retry_After="3600")
    async with place.dispatching():
        place.finish()
        await place.until("SELECT attempts FROM delivery", 1)

    wait = place.fetch("SELECT extract(epoch FROM next_at - now())::float8 FROM delivery")[0][0]
    assert 3500 < wait <= 3600


async def test_gone_disables_and_what_waits_is_sent_when_enabled_again(place: Place, receiver: Receiver) -> None:
    endpoint = await place.subscribe(receiver.url + "/hook")
    receiver.answers["/hook"] = answer(410)
    async with place.dispatching():
        place.finish()
        await place.until("SELECT disabled_reason FROM endpoint", "gone")
        place.finish()
        place.make_due()
        other = await place.subscribe(receiver.url + "/other")
        place.finish()
        await receiver.wait_for(1, "/other")
        assert len(receiver.at("/hook")) == 1
        await place.until("SELECT count(*) FROM delivery WHERE state = 0", 3)

        del receiver.answers["/hook"]
        async with place.database.tenant(place.tenant_id) as connection:
            await endpoints.change(
                connection,
                sealer=place.sealer,
                settings=place.settings,
                tenant_id=place.tenant_id,
                public_id=endpoint,
                enabled=True,
            )
        await place.until("SELECT count(*) FROM delivery WHERE state = 1", 4)

    assert other != endpoint
    assert place.fetch("SELECT disabled_at FROM endpoint ORDER BY id LIMIT 1") == [(None,)]


async def test_a_redirect_is_a_failure_and_is_not_followed(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hook")
    receiver.answers["/hook"] = answer(307, Location=receiver.url + "/elsewhere")
    async with place.dispatching():
        place.finish()
        await place.until("SELECT error FROM delivery_attempt UNION ALL SELECT NULL LIMIT 1", "redirect")

    assert [post.path for post in receiver.received] == ["/hook"]


async def test_a_receiver_may_disable_or_abort(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/disable")
    await place.subscribe(receiver.url + "/abort")
    receiver.answers["/disable"] = answer(400, webhook_delivery="disable")
    receiver.answers["/abort"] = answer(400, webhook_delivery="abort-message")
    async with place.dispatching():
        place.finish()
        await place.until(ALL_STATES, [0, 2])

    assert place.fetch("SELECT disabled_reason FROM endpoint ORDER BY id") == [("asked_by_receiver",), (None,)]


async def test_an_endpoint_of_a_batch_gets_that_batch_only(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/one", batch_id=2)
    await place.subscribe(receiver.url + "/all", event_types=("batch.completed",))
    async with place.dispatching():
        place.finish(3)
        place.finish(1, "batch.expired")
        await receiver.wait_for(3, "/all")
        await place.until("SELECT count(*) FROM delivery WHERE state = 1", 4)

    assert [json.loads(post.body)["data"]["id"] for post in receiver.at("/one")] == ["batch_2"]
    assert {json.loads(post.body)["type"] for post in receiver.at("/all")} == {"batch.completed"}


async def test_edits_reach_deliveries_that_wait(place: Place, receiver: Receiver) -> None:
    endpoint = await place.subscribe(receiver.url + "/old")
    place.finish()
    async with place.database.tenant(place.tenant_id) as connection:
        scope = {"sealer": place.sealer, "tenant_id": place.tenant_id, "public_id": endpoint}
        await endpoints.change(connection, settings=place.settings, url=receiver.url + "/new", **scope)  # type: ignore[arg-type]
        new = await endpoints.rotate_secret(connection, grace_seconds=3600, **scope)  # type: ignore[arg-type]
    async with place.dispatching():
        (post,) = await receiver.wait_for(1)

    assert post.path == "/new"
    for secret in (new, place.secrets[endpoint]):
        Webhook(secret).verify(post.body, post.headers)
    assert len(post.headers["webhook-signature"].split(" ")) == 2


async def test_an_expired_secret_never_signs(place: Place, receiver: Receiver) -> None:
    endpoint = await place.subscribe(receiver.url)
    async with place.database.tenant(place.tenant_id) as connection:
        new = await endpoints.rotate_secret(
            connection, sealer=place.sealer, tenant_id=place.tenant_id, public_id=endpoint, grace_seconds=3600
        )
    place.rows.execute("UPDATE secret SET expires_at = now() - interval '1 second' WHERE expires_at IS NOT NULL")
    place.finish()
    async with place.dispatching():
        (post,) = await receiver.wait_for(1)

    assert len(post.headers["webhook-signature"].split(" ")) == 1
    Webhook(new).verify(post.body, post.headers)


async def test_what_waits_for_a_deleted_endpoint_is_dropped(place: Place, receiver: Receiver) -> None:
    endpoint = await place.subscribe(receiver.url + "/gone")
    place.finish(3)
    async with place.database.tenant(place.tenant_id) as connection:
        await endpoints.remove(connection, tenant_id=place.tenant_id, public_id=endpoint)
    async with place.dispatching():
        await place.until(ALL_STATES, [3, 3, 3])

    assert receiver.received == []
    assert place.fetch("SELECT count(*) FROM secret")[0][0] == 0


async def test_a_person_may_ask_for_one_more_attempt(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url)
    place.finish()
    place.rows.execute("UPDATE delivery SET state = 2, attempts = 10, next_at = now() + interval '1 day'")
    (public_id,) = place.fetch("SELECT public_id FROM delivery")[0]
    async with place.dispatching():
        async with place.database.tenant(place.tenant_id) as connection:
            asked = await deliveries.retry(connection, tenant_id=place.tenant_id, public_id=public_id)
        await receiver.wait_for(1)
        await place.until(ALL_STATES, [1])

    assert (asked.state, asked.attempts) == (deliveries.DeliveryState.PENDING, 10)
    assert place.fetch("SELECT attempts FROM delivery") == [(11,)]


async def test_a_retry_of_what_is_in_flight_does_not_send_twice(place: Place, receiver: Receiver) -> None:
    await place.subscribe(receiver.url + "/hook")
    release = asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    receiver.answers["/hook"] = slow
    async with place.dispatching():
        place.finish()
        await receiver.wait_for(1)
        (public_id,) = place.fetch("SELECT public_id FROM delivery")[0]
        async with place.database.tenant(place.tenant_id) as connection:
            await deliveries.retry(connection, tenant_id=place.tenant_id, public_id=public_id)
        await place.subscribe(receiver.url + "/other")
        place.finish()
        await receiver.wait_for(1, "/other")
        release.set()
        await place.until(ALL_STATES, [1, 1, 1])

    assert max(receiver.counts().values()) <= 2
    assert len(receiver.at("/hook")) == 2


async def test_a_sealed_value_of_another_row_does_not_open_there(
    place: Place, receiver: Receiver, another_tenant: Callable[[], Place]
) -> None:
    other = another_tenant()
    await place.subscribe(receiver.url + "/mine")
    await other.subscribe(receiver.url + "/theirs")
    place.rows.execute(
        "UPDATE endpoint SET url = (SELECT url FROM endpoint WHERE tenant_id = %s) WHERE tenant_id = %s",
        (other.tenant_id, place.tenant_id),
    )
    async with place.dispatching():
        place.finish()
        other.finish()
        await place.until("SELECT array_agg(error ORDER BY error) FROM delivery_attempt", ["unsealable", None])

    assert [post.path for post in receiver.received] == ["/theirs"]
