"""Asking for responses in the background, and waiting for their end."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from tests.integration.api.conftest import MODEL
from tests.integration.api.rows import Worker
from tests.waiting import until

FINAL = ("completed", "failed", "cancelled", "incomplete")
LOG = [
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def begin(client: OpenAI, text: str = "hi", **more: Any) -> Any:
    return client.responses.create(model=MODEL, input=text, background=True, **more)


def ended(client: OpenAI, response_id: str) -> Any:
    return until(lambda: (found := client.responses.retrieve(response_id)).status in FINAL and found)


def many(worker: Worker, what: str) -> int:
    row = worker.execute(f"SELECT count(*) FROM {what}".encode()).fetchone()
    assert row is not None
    return int(row[0])
