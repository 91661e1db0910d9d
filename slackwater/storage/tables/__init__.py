"""The tables as SQLAlchemy sees them. Migrations write them out; a check proves the two equal."""

from __future__ import annotations

from slackwater.storage.tables.base import METADATA
from slackwater.storage.tables.batches import (
    batch,
    batch_model,
    file,
    file_chunk,
    lane,
    output_index,
    progress,
)
from slackwater.storage.tables.events import delivery, delivery_attempt, endpoint, event, secret
from slackwater.storage.tables.instances import (
    decision,
    gateway,
    grant,
    instance,
    instance_model,
    live_load,
    worker,
)
from slackwater.storage.tables.records import attempt, audit, idempotency, ledger
from slackwater.storage.tables.tenancy import api_key, model, model_access, price, project, tenant
from slackwater.storage.tables.uploads import upload, upload_part
from slackwater.storage.tables.work import lease, request, result, segment

__all__ = [
    "METADATA",
    "api_key",
    "attempt",
    "audit",
    "batch",
    "batch_model",
    "decision",
    "delivery",
    "delivery_attempt",
    "endpoint",
    "event",
    "file",
    "file_chunk",
    "gateway",
    "grant",
    "idempotency",
    "instance",
    "instance_model",
    "lane",
    "lease",
    "ledger",
    "live_load",
    "model",
    "model_access",
    "output_index",
    "price",
    "progress",
    "project",
    "request",
    "result",
    "secret",
    "segment",
    "tenant",
    "upload",
    "upload_part",
    "worker",
]
