"""The matrix of the OpenAPI document's operations and callers: a foreign object is as good as one that never was.

A new route fails here until it is classified.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import psycopg
import pytest

from api import openapi
from slackwater import ids
from slackwater.outbox import publish
from slackwater.storage.connections import connect
from slackwater.tenancy import keys, models
from tests.integration.api.conftest import MODEL, Api
from tests.integration.api.rows import Worker, finish, row_of, run, store

# Operations that name no object of a tenant: what they show or make is the caller's own.
OWN: Final = frozenset(
    {
        "POST /v1/files",
        "GET /v1/files",
        "POST /v1/batches",
        "POST /v1/batches/validate",
        "POST /v1/uploads",
        "GET /v1/batches",
        "GET /v1/models",
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "POST /v1/embeddings",
        "POST /v1/responses",
        "GET /v1/instances",
        "GET /v1/webhook_event_types",
        "POST /v1/webhook_endpoints",
        "GET /v1/webhook_endpoints",
    }
)
# The objects a path names, by the name of its parameter, and how an id of them begins. A batch's files are files, too.
OBJECTS: Final[Mapping[str, str]] = {
    "file_id": "file-",
    "batch_id": "batch_",
    "webhook_endpoint_id": "we_",
    "delivery_id": "whd_",
    "upload_id": "upload_",
    "response_id": "resp_",
}
# Operations on an object, with a body that would do if the object were the caller's.
BODIES: Final[Mapping[str, dict[str, Any] | None]] = {
    "GET /v1/files/{file_id}": None,
    "DELETE /v1/files/{file_id}": None,
    "GET /v1/files/{file_id}/content": None,
    "GET /v1/batches/{batch_id}": None,
    "POST /v1/batches/{batch_id}/cancel": None,
    "PATCH /v1/batches/{batch_id}": {"priority": 1},
    "POST /v1/batches/{batch_id}/retry": {},
    "GET /v1/batches/{batch_id}/events": None,
    "GET /v1/batches/{batch_id}/results": None,
    "GET /v1/batches/{batch_id}/requests/{custom_id}": None,
    "POST /v1/uploads/{upload_id}/parts": None,
    "POST /v1/uploads/{upload_id}/complete": {"part_ids": []},
    "POST /v1/uploads/{upload_id}/cancel": None,
    "GET /v1/responses/{response_id}": None,
    "POST /v1/responses/{response_id}/cancel": None,
    "DELETE /v1/responses/{response_id}": None,
    "GET /v1/responses/{response_id}/input_items": None,
    "GET /v1/webhook_endpoints/{webhook_endpoint_id}": None,
    "POST /v1/webhook_endpoints/{webhook_endpoint_id}": {"name": "mine now"},
    "DELETE /v1/webhook_endpoints/{webhook_endpoint_id}": None,
    "POST /v1/webhook_endpoints/{webhook_endpoint_id}/rotate_secret": {},
    "POST /v1/webhook_endpoints/{webhook_endpoint_id}/test": {"event_type": "batch.completed"},
    "GET /v1/webhook_endpoints/{webhook_endpoint_id}/deliveries": None,
    "POST /v1/deliveries/{delivery_id}/retry": None,
}
# Models and their instances are shared, under the right to use them; what is asked is whether that right is looked at.
SHARED: Final = frozenset(
    {"GET /v1/models/{model}", "GET /v1/instances/{instance_id}", "GET /v1/instances/{instance_id}/decisions"}
)
PARAMETER: Final = re.compile(r"\{([a-z_]+)\}")
CUSTOM_ID: Final = "r1"  # names a line inside of the batch that the path names
VARYING: Final = ("x-request-id", "date")
ID: Final = re.compile(r"(?:file-|batch_|resp_|we_|whd_|evt_)[0-9a-f]{32}")


def operations() -> list[str]:
    return [name for name, _ in openapi.operations(json.loads(openapi.text())["paths"])]


def is_admin(name: str) -> bool:
    return "/v1/admin/" in name


@dataclass(frozen=True)
class World:
    """What tenant alpha has, by the parameter that names it."""

    api: Api
    owned: dict[str, list[str]]

    @property
    def ids(self) -> set[str]:
        return {one for found in self.owned.values() for one in found}


@pytest.fixture
def world(api: Api, worker: Worker, dsn: str) -> World:
    """A finished batch with both its files, an upload, a response, an endpoint and a delivery, all of alpha."""
    client = api.client()
    file = client.files.create(file=b"{}\n", purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    row = row_of(worker, batch.id)
    run(worker, row, 2)
    store(worker, row, 1, b"{}\n")
    store(worker, row, 2, b"{}\n", outcome=1)
    finish(worker, row, {0: {1: b"{}\n"}, 1: {2: b"{}\n"}})
    done = client.batches.retrieve(batch.id)
    endpoint = client.webhooks.create(name="main", url="https://example.com/hook", event_types=["batch.completed"])
    delivery = _delivery(api, dsn, endpoint.id, row.tenant_id, batch.id)
    assert done.output_file_id
    assert done.error_file_id
    files = [file.id, done.output_file_id, done.error_file_id]
    asked = {"purpose": "batch", "filename": "a", "bytes": 3, "mime_type": "application/jsonl"}
    upload = api.http().post("/v1/uploads", json=asked).json()["id"]
    response = client.responses.create(model=MODEL, input="hi", background=True)
    owned = {
        "response_id": [response.id],
        "upload_id": [upload],
        "file_id": files,
        "batch_id": [batch.id],
        "webhook_endpoint_id": [endpoint.id],
        "delivery_id": [delivery],
    }
    return World(api, owned)


def _delivery(api: Api, dsn: str, endpoint_id: str, tenant_id: int, batch_id: str) -> str:
    with connect(dsn) as duty, psycopg.connect(dsn, autocommit=True):
        publish(duty, tenant_id, 1, "batch.completed", {"id": batch_id})
    (shown,) = api.http().get(f"/v1/webhook_endpoints/{endpoint_id}/deliveries").json()["data"]
    return str(shown["id"])


def asks(world: World) -> Iterator[tuple[str, str, str, dict[str, Any] | None]]:
    """Method, path of alpha's object, the same path with a random id, and body: for every operation on an object."""
    for name, body in BODIES.items():
        method, _, path = name.partition(" ")
        parameter = PARAMETER.findall(path)[0]
        path = path.replace("{custom_id}", CUSTOM_ID)
        for owned in world.owned[parameter]:
            random = ids.new(OBJECTS[parameter])
            yield method, PARAMETER.sub(owned, path), PARAMETER.sub(random, path), body


def seen(reply: httpx2.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    """All that a caller can tell two replies apart by, but for the id and the time of each."""
    return reply.status_code, reply.content, sorted((k, v) for k, v in reply.headers.items() if k not in VARYING)


def test_every_operation_is_classified() -> None:
    found = set(operations())
    classified = {*OWN, *BODIES, *SHARED, *(f"GET {path}" for path in openapi.OPEN_PATHS)}

    assert {name for name in found if not is_admin(name)} - classified == set(), "say what a new route names"
    assert classified - found == set()


def test_every_parameter_of_a_path_names_a_known_kind() -> None:
    for name in BODIES:
        first, *inner = PARAMETER.findall(name)
        assert first in OBJECTS, name
        assert set(inner) <= {"custom_id"}, name


def test_a_foreign_object_is_as_good_as_none(world: World) -> None:
    theirs, asked = world.api.http(world.api.other_key), 0
    before = snapshot(world)
    for method, foreign, random, body in asks(world):
        replies = [seen(theirs.request(method, path, json=body)) for path in (foreign, random)]
        assert replies[0] == replies[1], (method, foreign)
        assert replies[0][0] == 404, (method, foreign)
        asked += 1

    assert asked >= len(BODIES)
    assert snapshot(world) == before


def test_an_administrator_of_another_tenant_sees_no_object_either(world: World) -> None:
    """`admin` gives every scope, not every tenant's objects."""
    admin = world.api.admin(lambda connection: keys.create(connection, "beta", scopes=["admin"])).text
    theirs = world.api.http(admin)
    for method, foreign, random, body in asks(world):
        assert seen(theirs.request(method, foreign, json=body)) == seen(theirs.request(method, random, json=body))


def test_a_range_or_a_tag_tells_nothing_of_a_foreign_file(world: World) -> None:
    theirs = world.api.http(world.api.other_key)
    for file_id in world.owned["file_id"]:
        random = ids.new("file-")
        for name, value in (("range", "bytes=0-1"), ("if-none-match", f'"{file_id}"'), ("if-range", f'"{file_id}"')):
            replies = [seen(theirs.get(f"/v1/files/{one}/content", headers={name: value})) for one in (file_id, random)]
            assert replies[0] == replies[1]
            assert replies[0][0] == 404


def test_lists_and_cursors_hold_nothing_foreign(world: World) -> None:
    theirs = world.api.http(world.api.other_key)
    for name in OWN:
        method, _, path = name.partition(" ")
        if method != "GET":
            continue
        shown = theirs.get(path)
        assert shown.status_code == 200
        assert not world.ids & set(ID.findall(shown.text)), name
    for path, parameter in (
        ("/v1/files", "file_id"),
        ("/v1/batches", "batch_id"),
        ("/v1/webhook_endpoints", "webhook_endpoint_id"),
    ):
        for foreign in world.owned[parameter]:
            replies = [seen(theirs.get(path, params={"after": one})) for one in (foreign, ids.new(OBJECTS[parameter]))]
            assert replies[0] == replies[1], path
            assert replies[0][0] == 400


def test_an_id_in_disguise_is_no_id(world: World) -> None:
    """Encoded twice, with another tail, another case or other digits: never the object, for its owner neither."""
    own = world.api.http()
    for method, path, _, _ in asks(world):
        if method != "GET":
            continue
        stem, _, last = path.rpartition("/")
        target = last if ID.fullmatch(last) else stem.rpartition("/")[2]
        for odd in (
            target.replace("_", "%255F").replace("-", "%252D"),
            target.upper(),
            f"{target}%00",
            f"x%2f..%2f{target}",
            f"{target}%20",
        ):
            assert own.get(path.replace(target, odd)).status_code == 404, odd


def test_administration_is_not_for_clients(world: World) -> None:
    client = world.api.http()
    admin = [name for name in operations() if is_admin(name)]
    for name in admin:
        method, _, path = name.partition(" ")
        assert client.request(method, PARAMETER.sub("alpha", path), json={}).status_code == 403, name

    assert len(admin) >= 15


def test_a_model_is_shown_to_who_may_use_it(world: World) -> None:
    world.api.admin(lambda connection: models.ensure(connection, "hidden", is_open=False))
    world.api.admin(lambda connection: models.allow(connection, "hidden", "alpha"))
    theirs = world.api.http(world.api.other_key)

    assert world.api.http().get("/v1/models/hidden").status_code == 200
    assert seen(theirs.get("/v1/models/hidden")) == seen(theirs.get("/v1/models/nothing"))
    assert theirs.get(f"/v1/models/{MODEL}").status_code == 200


def test_an_idempotency_key_is_the_tenants_own(world: World) -> None:
    body = {"input_file_id": ids.new("file-"), "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    headers = {"idempotency-key": "shared-by-chance"}
    made = [
        world.api.http(key).post("/v1/batches", json=body, headers=headers)
        for key in (world.api.key, world.api.other_key)
    ]

    assert [reply.status_code for reply in made] == [200, 200]
    assert made[0].json()["id"] != made[1].json()["id"]
    assert "idempotent-replayed" not in made[1].headers


def snapshot(world: World) -> list[tuple[int, bytes]]:
    """What the owner sees of everything."""
    own = world.api.http()
    replies = [own.get(path) for method, path, _, _ in asks(world) if method == "GET" and CUSTOM_ID not in path]
    assert all(reply.status_code == 200 for reply in replies)
    return [(reply.status_code, reply.content) for reply in replies]
