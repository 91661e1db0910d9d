"""The list of models."""

from __future__ import annotations

from slackwater.conformance.expect import equal, holds, members, ok, refused
from slackwater.conformance.registry import Group
from slackwater.conformance.session import Session

models = Group("models", "8")


@models.check("200 {object: list, data: […]} holding the model")
def list_holds_the_model(session: Session) -> None:
    listed = ok(session.get("/v1/models"))
    equal("object", listed["object"], "list")
    holds(session.model in [model["id"] for model in listed["data"]], f"{session.model} is not in the list")


@models.check("200 {id, object: model, created, owned_by}")
def retrieve_one(session: Session) -> None:
    model = ok(session.get(f"/v1/models/{session.model}"))
    members(model, ("id", "object", "created", "owned_by"), "model")
    equal("object", model["object"], "model")


@models.check("404 with code model_not_found")
def unknown_is_404(session: Session) -> None:
    refused(session.get("/v1/models/no-such-model-anywhere"), 404, code="model_not_found")
