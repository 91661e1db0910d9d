"""Administration over HTTP; the CLI calls the same services."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import psycopg
import pytest

from slackwater.sealing import Sealer
from slackwater.tenancy.instances import context_of
from tests.integration.api.conftest import MODEL, Api
from tests.integration.api.rows import Worker

UPSTREAM = {
    "name": "gpu-1",
    "url": "http://127.0.0.1:9/v1/",
    "api_key": "SECRET-CANARY",
    "models": {"tiny-chat": "org/tiny", "other/chat": "other"},
    "gpus": ["GPU-1"],
    "max_slots": 8,
    "mode": "strict",
}


@pytest.fixture
def admin(api: Api) -> httpx2.Client:
    return api.http(api.admin_key)


def test_from_a_tenant_to_a_working_key_and_back(api: Api, admin: httpx2.Client) -> None:
    tenant = admin.post("/v1/admin/tenants", json={"name": "gamma", "weight": 3}).json()
    project = admin.post(f"/v1/admin/tenants/{tenant['id']}/projects", json={"name": "night"}).json()
    made = admin.post("/v1/admin/tenants/gamma/keys", json={"name": "k", "project": project["id"]}).json()

    assert (tenant["name"], tenant["weight"], tenant["suspended_at"]) == ("gamma", 3, None)
    assert api.http(made["key"]).get("/v1/batches").status_code == 200
    listed = admin.get("/v1/admin/tenants/gamma/keys").json()["data"]
    assert [key["id"] for key in listed] == [made["id"]]
    assert "key" not in listed[0]
    assert made["key"].endswith(listed[0]["last4"])
    names = [row["name"] for row in admin.get("/v1/admin/tenants/gamma/projects").json()["data"]]
    assert names == ["default", "night"]

    revoked = admin.post(f"/v1/admin/keys/{made['id']}/revoke").json()
    assert revoked["revoked_at"] is not None
    assert admin.get("/v1/admin/tenants").json()["data"][-1]["id"] == tenant["id"]
    assert admin.post("/v1/admin/tenants/gamma/suspend").json()["suspended_at"] is not None
    assert admin.post("/v1/admin/tenants/gamma/resume").json()["suspended_at"] is None


def test_what_was_done_is_on_record(api: Api, admin: httpx2.Client) -> None:
    admin.post("/v1/admin/tenants", json={"name": "gamma"})
    with psycopg.connect(api.dsn) as connection:
        connection.execute("SET ROLE sw_admin")
        rows = connection.execute("SELECT action, actor FROM audit ORDER BY id DESC LIMIT 2").fetchall()

    actor = f"key:{api.admin_key.split('_')[1]}"
    assert rows == [("tenant.created", actor), ("project.created", actor)]


SENSELESS: list[tuple[str, dict[str, Any], int, str]] = [
    ("tenants", {"name": "alpha"}, 409, "name"),
    ("tenants", {"name": " \t"}, 400, "name"),
    ("tenants", {"name": "x", "weight": 0}, 400, "weight"),
    ("tenants/none/keys", {}, 404, "tenant"),
    ("tenants/alpha/keys", {"scopes": ["root"]}, 400, "scopes"),
    ("tenants/alpha/keys", {"project": "none"}, 404, "project"),
    ("models", {"name": "a b"}, 400, "name"),
    ("prices", {"model": "tiny-chat", "input": 0.1, "output": "1"}, 400, "input"),
    ("prices", {"model": "tiny-chat", "input": "NaN", "output": "1"}, 400, "input"),
    ("prices", {"model": "none", "input": "1", "output": "1"}, 404, "model"),
    ("model_access", {"model": "tiny-chat", "tenant": "none"}, 404, "tenant"),
    ("instances", UPSTREAM | {"url": "file:///etc/passwd"}, 400, "url"),
    ("instances", UPSTREAM | {"url": "http://user:pass@host/v1"}, 400, "url"),
    ("instances", UPSTREAM | {"models": {}}, 400, "models"),
    ("instances", UPSTREAM | {"gpus": ["0"]}, 400, "gpus.0"),
    ("instances", UPSTREAM | {"max_slots": 0}, 400, "max_slots"),
]


def test_what_makes_no_sense_is_refused(admin: httpx2.Client, subtests: pytest.Subtests) -> None:
    for path, body, status, param in SENSELESS:
        with subtests.test(f"{path} {param}"):
            reply = admin.post(f"/v1/admin/{path}", json=body)

            assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text
            assert "SECRET-CANARY" not in reply.text


def test_a_closed_model_is_for_those_who_were_let_in(api: Api, admin: httpx2.Client) -> None:
    admin.post("/v1/admin/models", json={"name": "closed/one", "is_open": False})
    mine, theirs = api.client(), api.client(api.other_key)
    with pytest.raises(openai.NotFoundError) as caught:
        mine.models.retrieve("closed/one")
    assert caught.value.code == "model_not_found"

    admin.post("/v1/admin/model_access", json={"model": "closed/one", "tenant": "alpha"})

    assert mine.models.retrieve("closed/one").id == "closed/one"
    assert [model.id for model in mine.models.list()] == ["closed/one", MODEL]
    assert [model.id for model in theirs.models.list()] == [MODEL]
    admin.post("/v1/admin/model_access", json={"model": "closed/one", "tenant": "alpha", "allowed": False})
    assert [model.id for model in mine.models.list()] == [MODEL]


def test_prices_are_exact(admin: httpx2.Client, worker: Worker) -> None:
    price = {"model": MODEL, "input": "0.15", "output": "0.6", "cached": "0.075"}

    made = admin.post("/v1/admin/prices", json=price).json()

    assert (made["input_per_million"], made["cached_per_million"]) == ("0.15", "0.075")
    row = worker.execute("SELECT input_picodollars, cached_picodollars, output_picodollars FROM price").fetchone()
    assert row == (150_000, 75_000, 600_000)
    assert admin.get("/v1/admin/prices").json()["data"] == [made]


def test_an_instance_is_registered_with_its_key_sealed(api: Api, admin: httpx2.Client, worker: Worker) -> None:
    made = admin.post("/v1/admin/instances", json=UPSTREAM).json()

    assert made["url"] == "http://127.0.0.1:9/v1"
    assert made["models"] == UPSTREAM["models"]
    assert made["has_api_key"] is True
    row = worker.execute("SELECT api_key FROM instance").fetchone()
    assert row is not None
    assert Sealer(bytes(range(32))).unseal(row[0], context_of(made["id"])) == b"SECRET-CANARY"
    assert admin.get("/v1/admin/instances").json()["data"] == [made]
    assert admin.post("/v1/admin/instances", json=UPSTREAM).status_code == 409

    seen = api.http().get("/v1/instances").json()["data"]
    assert [(one["name"], one["models"], one["gpus"], one["has_worker"]) for one in seen] == [
        ("gpu-1", ["other/chat", "tiny-chat"], 1, False)
    ]
    assert "url" not in seen[0]
    disabled = admin.post("/v1/admin/instances/gpu-1/disable").json()
    assert disabled["disabled_at"] is not None
    assert api.http().get("/v1/instances").json()["data"] == []
    assert admin.post("/v1/admin/instances/gpu-1/enable").json()["disabled_at"] is None
