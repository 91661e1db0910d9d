"""`/v1/batches/validate`: what would become of an input, with nothing queued (contract: WIRE 8)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from api.auth import BatchesWriter, Store
from api.batch_input import Incoming, incoming, one_input
from api.bodies import checked
from slackwater.errors import Gone, NotFound
from slackwater.reader.limits import Limits
from slackwater.storage import files
from slackwater.storage.database import Database
from slackwater.storage.validation import DryRun, dry_run, models_of
from slackwater.wire.batch_request import ValidateBatch

router = APIRouter(prefix="/v1/batches", tags=["batches"])


@router.post("/validate")
async def validate(request: Request, caller: BatchesWriter, database: Store) -> dict[str, Any]:
    """Check a file, or `requests` in the body, as a batch over it would be: errors by line, counts, and a guess at the prompts' tokens."""
    settings = request.app.state.settings
    limits = Limits(max_line_bytes=settings.max_line_bytes, max_requests=settings.max_requests)
    async with incoming(request, database, caller) as body:
        asked = checked(body.value, ValidateBatch)
        one_input(asked)
        file_id, size, models = await _input(database, caller.tenant_id, body, asked.input_file_id)
        try:
            run = await dry_run(database, caller.tenant_id, file_id, size, asked.endpoint, limits, models)
        except Gone:
            raise _missing() from None
    return _object(asked.endpoint, asked.input_file_id or None, run)


async def _input(
    database: Database, tenant_id: int, body: Incoming, input_file_id: str
) -> tuple[int, int, dict[str, int]]:
    """The internal id and the size of what is to be read, and the models it may name."""
    async with database.tenant(tenant_id) as connection:
        models = await models_of(connection, tenant_id)
        if body.upload.file_id is not None:
            return body.upload.file_id, body.upload.size, models
        row = await files.find(connection, tenant_id, input_file_id)
    if row is None or row["batch_id"] is not None:
        raise _missing()
    return row["id"], row["bytes"], models


def _missing() -> NotFound:
    return NotFound("No such File object.", param="input_file_id")


def _object(endpoint: str, input_file_id: str | None, run: DryRun) -> dict[str, Any]:
    validator = run.validator
    return {
        "object": "batch.validation",
        "endpoint": endpoint,
        "input_file_id": input_file_id,
        "valid": not validator.error_count,
        "request_counts": {"total": validator.total, "valid": run.valid, "invalid": validator.error_count},
        "estimated_input_tokens": sum(sums.tokens for sums in run.models.values()),
        "models": [
            {"model": name, "requests": sums.requests, "estimated_input_tokens": sums.tokens}
            for name, sums in run.models.items()
        ],
        "errors": {"object": "list", "data": validator.errors_data()} if validator.error_count else None,
    }
