"""Every route is known here, with the scope it asks for: a new one fails until it is classified."""

from __future__ import annotations

from api.app import create_app
from slackwater.settings import Settings
from slackwater.tenancy import keys
from tests.integration.api.conftest import Api

OPEN = {"/healthz", "/readyz", "/metrics"}
METHODS = ("get", "post", "put", "patch", "delete")


def test_every_route_but_health_refuses_a_caller_without_a_key(api: Api, api_settings: Settings) -> None:
    paths = create_app(api_settings).openapi()["paths"]
    http = api.http("")
    asked = 0
    for path, operations in paths.items():
        for method in set(operations) & set(METHODS):
            reply = http.request(method, path)
            assert (reply.status_code == 401) == (path not in OPEN), (method, path, reply.status_code)
            asked += 1

    assert asked >= 30


def test_a_read_only_key_changes_nothing(api: Api, api_settings: Settings) -> None:
    """Over the same list: whatever is not a GET is 403 for a key that may only read."""
    scopes = ["files:read", "batches:read", "models:read"]
    key = api.admin(lambda connection: keys.create(connection, "alpha", scopes=scopes)).text
    http = api.http(key)
    for path, operations in create_app(api_settings).openapi()["paths"].items():
        for method in set(operations) & set(METHODS) - {"get"}:
            assert http.request(method, path).status_code == 403, (method, path)
        if path.startswith("/v1/admin"):
            assert http.get(path).status_code in (403, 405), path
