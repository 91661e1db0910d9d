"""What a client may ask for when it creates a batch (contract: WIRE 1.5 and 8)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from slackwater.errors import InvalidRequest
from slackwater.wire.files import LONGEST_LIFE_SECONDS, SHORTEST_LIFE_SECONDS

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
Status = Literal["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"]
METADATA_PARAMETER: Final = re.compile(r"metadata\[(.*)\]", re.DOTALL)
WINDOW: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
MOST_METADATA: Final = 16
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
SHORTEST_WINDOW: Final = timedelta(seconds=1)
LONGEST_WINDOW: Final = timedelta(days=30)


def window_of(text: str) -> timedelta | None:
    """The window that `24h`, `30m`, `45s` or `7d` names; None when it is none, or not from 1 second to 30 days."""
    found = WINDOW.fullmatch(text)
    if found is None:
        return None
    window = timedelta(**{UNITS[found[2]]: int(found[1])})
    return window if SHORTEST_WINDOW <= window <= LONGEST_WINDOW else None


def metadata_of(parameters: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The pairs that `metadata[key]=value` in a query ask for.

    Raises:
        InvalidRequest: one key twice, a NUL character, or more pairs than a batch can have.
    """
    found: dict[str, str] = {}
    for name, value in parameters:
        if (wanted := METADATA_PARAMETER.fullmatch(name)) is None:
            continue
        if wanted[1] in found or "\0" in wanted[1] + value or len(found) == MOST_METADATA:
            raise InvalidRequest("This is not a filter by metadata.", code="invalid_value", param="metadata")
        found[wanted[1]] = value
    return found


def _window(text: str) -> str:
    if window_of(text) is None:
        raise PydanticCustomError("invalid_window", "Supported are 1s to 30d, such as '24h', '30m' or '7d'.")
    return text


def _clean(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("invalid_characters", "A NUL character is not accepted here.")
    return text


Clean = Annotated[str, AfterValidator(_clean)]
Window = Annotated[str, AfterValidator(_window)]
MetadataKey = Annotated[str, StringConstraints(max_length=64), AfterValidator(_clean)]
MetadataValue = Annotated[str, StringConstraints(max_length=512), AfterValidator(_clean)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=MOST_METADATA)]


class Body(BaseModel):
    """A JSON body: strict types, no coercion, unknown members refused by name, values never repeated in errors."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True, frozen=True)


class ExpiresAfter(Body):
    """When the output files go: so many seconds after their creation."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=SHORTEST_LIFE_SECONDS, le=LONGEST_LIFE_SECONDS)


class BatchWebhook(Body):
    """Where the four final events of this one batch go."""

    url: Annotated[str, StringConstraints(min_length=1, max_length=2048), AfterValidator(_clean)]


class BatchInput(Body):
    """What every batch begins with. `requests` are seen as placeholders: their bytes were taken out while the body arrived."""

    input_file_id: Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_clean)] = ""
    requests: Annotated[list[int], Field(min_length=1)] | None = None
    endpoint: Endpoint


class ValidateBatch(BatchInput):
    """The body of `POST /v1/batches/validate`."""


class CreateBatch(BatchInput):
    """The body of `POST /v1/batches`; `requests` and what follows `output_expires_after` are ours."""

    completion_window: Window
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    priority: int = Field(0, ge=-100, le=100)
    on_invalid: Literal["fail", "skip"] = "fail"
    webhook: BatchWebhook | None = None
    webhook_metadata: Metadata | None = None
    output_order: Literal["input", "completion"] = "input"

    @property
    def window(self) -> timedelta:
        window = window_of(self.completion_window)
        assert window is not None
        return window


class RetryBatch(Body):
    """The body of `POST /v1/batches/{batch_id}/retry`; what it does not say is as in the batch that is retried."""

    completion_window: Window | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    metadata: Metadata | None = None


class ChangeBatch(Body):
    """The body of `PATCH /v1/batches/{batch_id}`."""

    completion_window: Window | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None

    @property
    def window(self) -> timedelta | None:
        return None if self.completion_window is None else window_of(self.completion_window)
