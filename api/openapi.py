"""The OpenAPI document of the API: `python -m api.openapi` prints what `docs/openapi.json` holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel, SecretStr
from pydantic.json_schema import models_json_schema

from api.app import create_app
from api.routes import admin_bodies, webhook_bodies
from slackwater.settings import Settings
from slackwater.wire.batch_request import ChangeBatch, CreateBatch, RetryBatch, ValidateBatch
from slackwater.wire.files import LONGEST_LIFE_SECONDS, SHORTEST_LIFE_SECONDS, UPLOAD_PURPOSES
from slackwater.wire.response_request import BackgroundOptions
from slackwater.wire.uploads import CompleteUpload, CreateUpload

METHODS: Final = ("get", "put", "post", "patch", "delete")
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
REF: Final = "#/components/schemas/{model}"

# What each operation reads, by its name; one that is in none of these tables is refused by `document`.
JSON_BODIES: Final[Mapping[str, type[BaseModel]]] = {
    "POST /v1/batches": CreateBatch,
    "PATCH /v1/batches/{batch_id}": ChangeBatch,
    "POST /v1/batches/{batch_id}/retry": RetryBatch,
    "POST /v1/batches/validate": ValidateBatch,
    "POST /v1/uploads": CreateUpload,
    "POST /v1/uploads/{upload_id}/complete": CompleteUpload,
    "POST /v1/webhook_endpoints": webhook_bodies.CreateEndpoint,
    "POST /v1/webhook_endpoints/{webhook_endpoint_id}": webhook_bodies.ChangeEndpoint,
    "POST /v1/webhook_endpoints/{webhook_endpoint_id}/rotate_secret": webhook_bodies.RotateSecret,
    "POST /v1/webhook_endpoints/{webhook_endpoint_id}/test": webhook_bodies.TestEndpoint,
    "POST /v1/admin/tenants": admin_bodies.CreateTenant,
    "POST /v1/admin/tenants/{tenant}/projects": admin_bodies.CreateProject,
    "POST /v1/admin/tenants/{tenant}/keys": admin_bodies.CreateKey,
    "POST /v1/admin/models": admin_bodies.EnsureModel,
    "POST /v1/admin/model_access": admin_bodies.ModelAccess,
    "POST /v1/admin/prices": admin_bodies.SetPrice,
    "POST /v1/admin/instances": admin_bodies.CreateInstance,
}
FORMS: Final[Mapping[str, dict[str, Any]]] = {
    "POST /v1/files": {
        "type": "object",
        "required": ["purpose", "file"],
        "properties": {
            "purpose": {"type": "string", "enum": list(UPLOAD_PURPOSES)},
            "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
            "expires_after[seconds]": {
                "type": "integer",
                "minimum": SHORTEST_LIFE_SECONDS,
                "maximum": LONGEST_LIFE_SECONDS,
            },
            "file": {"type": "string", "format": "binary"},
        },
    },
    "POST /v1/uploads/{upload_id}/parts": {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "string", "format": "binary"}},
    },
}
# Bodies that go on to an engine: any JSON object, in the engine's own words.
ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
PASSED_ON: Final[Mapping[str, Mapping[str, Any]]] = {
    "POST /v1/chat/completions": ANY_OBJECT,
    "POST /v1/completions": ANY_OBJECT,
    "POST /v1/embeddings": ANY_OBJECT,
    "POST /v1/responses": {
        "type": "object",
        "required": ["model", "input"],
        "properties": {
            "model": {"type": "string"},
            "input": {"type": ["string", "array"]},
            **{name: {"type": ["boolean", "null"]} for name in ("background", "stream", "store")},
            "metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
            "background_options": {"$ref": REF.format(model="BackgroundOptions")},
        },
    },
}
BODILESS: Final = frozenset(
    {
        "POST /v1/batches/{batch_id}/cancel",
        "POST /v1/uploads/{upload_id}/cancel",
        "POST /v1/responses/{response_id}/cancel",
        "POST /v1/deliveries/{delivery_id}/retry",
        "POST /v1/admin/tenants/{tenant}/suspend",
        "POST /v1/admin/tenants/{tenant}/resume",
        "POST /v1/admin/keys/{key}/revoke",
        "POST /v1/admin/instances/{instance}/disable",
        "POST /v1/admin/instances/{instance}/enable",
    }
)
ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


# What an operation answers, where that is an object with an id: by this a reader, or a test tool, knows which id goes where.
ANSWERS: Final[Mapping[str, str]] = {
    "POST /v1/files": "File",
    "GET /v1/files": "FileList",
    "GET /v1/files/{file_id}": "File",
    "POST /v1/batches": "Batch",
    "GET /v1/batches": "BatchList",
    "GET /v1/batches/{batch_id}": "Batch",
    "POST /v1/batches/{batch_id}/cancel": "Batch",
    "POST /v1/responses": "Response",
    "GET /v1/responses/{response_id}": "Response",
    "POST /v1/responses/{response_id}/cancel": "Response",
    "POST /v1/webhook_endpoints": "WebhookEndpoint",
    "GET /v1/webhook_endpoints": "WebhookEndpointList",
    "GET /v1/webhook_endpoints/{webhook_endpoint_id}": "WebhookEndpoint",
    "POST /v1/webhook_endpoints/{webhook_endpoint_id}": "WebhookEndpoint",
}
IDS: Final[Mapping[str, tuple[str, str]]] = {
    "File": ("file", "^file-[0-9a-f]{32}$"),
    "Batch": ("batch", "^batch_[0-9a-f]{32}$"),
    "Response": ("response", "^resp_[0-9a-f]{32}$"),
    "WebhookEndpoint": ("webhook_endpoint", "^we_[0-9a-f]{32}$"),
}
EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    "POST /v1/batches": {
        "input_file_id": "file-00000000000000000000000000000000",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    },
    "POST /v1/responses": {"model": "tiny-chat", "input": "Say hi.", "background": True},
    "POST /v1/webhook_endpoints": {
        "name": "main",
        "url": "https://example.com/hook",
        "event_types": ["batch.completed"],
    },
}


class Undescribed(LookupError):
    """An operation may read a body, and nothing here says which."""


def document(app: FastAPI) -> dict[str, Any]:
    """The document of `app`: its routes, what they read, how they refuse, and who may call.

    Raises:
        Undescribed: a route that may read a body is in none of the tables above.
    """
    paths = json.loads(json.dumps(app.openapi()["paths"]))
    for name, operation in operations(paths):
        _refusals(operation)
        _body(name, operation)
        _answer(name, operation)
        if name.partition(" ")[2] in OPEN_PATHS:
            operation["security"] = []
    return {
        "openapi": "3.1.0",
        "info": {"title": "Slackwater", "version": "1", "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def operations(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every operation with its name, such as `POST /v1/batches`."""
    for path, item in paths.items():
        for method in METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


def _refusals(operation: dict[str, Any]) -> None:
    """A refusal is the envelope: FastAPI's own 422 is never sent."""
    operation["responses"].pop("422", None)
    content = {"application/json": {"schema": {"$ref": REF.format(model="Error")}}}
    for status, meaning in (("4XX", "The request is refused."), ("503", "Try again after a moment.")):
        operation["responses"].setdefault(status, {"description": meaning, "content": content})


def _body(name: str, operation: dict[str, Any]) -> None:
    if name in JSON_BODIES:
        _reads_json(name, operation, {"$ref": REF.format(model=JSON_BODIES[name].__name__)})
    elif name in FORMS:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": FORMS[name]}}}
    elif name in PASSED_ON:
        _reads_json(name, operation, PASSED_ON[name])
    elif name not in BODILESS and not name.startswith(("GET ", "DELETE ")):
        raise Undescribed(name)


def _reads_json(name: str, operation: dict[str, Any], schema: Mapping[str, Any]) -> None:
    content = {"schema": dict(schema)} | ({"example": EXAMPLES[name]} if name in EXAMPLES else {})
    operation["requestBody"] = {"required": True, "content": {"application/json": content}}


def _answer(name: str, operation: dict[str, Any]) -> None:
    if name in ANSWERS:
        schema = {"$ref": REF.format(model=ANSWERS[name])}
        operation["responses"]["200"]["content"] = {"application/json": {"schema": schema}}


def _objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object with an id, and the page that lists it."""
    for name, (word, form) in IDS.items():
        members = {"id": {"type": "string", "pattern": form}, "object": {"const": word}}
        yield name, {"type": "object", "required": ["id", "object"], "properties": members}
        cursor = {"type": ["string", "null"], "pattern": form}
        page = {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": REF.format(model=name)}},
            "first_id": cursor,
            "last_id": cursor,
            "has_more": {"type": "boolean"},
        }
        yield f"{name}List", {"type": "object", "required": list(page), "properties": page}


def _schemas() -> dict[str, Any]:
    models = [(model, "validation") for model in (*JSON_BODIES.values(), BackgroundOptions)]
    _, defined = models_json_schema(models, ref_template=REF)  # type: ignore[arg-type]
    return dict(sorted((defined["$defs"] | dict(_objects()) | {"Error": ERROR}).items()))


def text() -> str:
    """The document as the file holds it."""
    app = create_app(Settings(database_url=SecretStr("postgresql://nobody@localhost/nothing")))
    return json.dumps(document(app), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
