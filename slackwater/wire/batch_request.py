"""What a client may ask for when it creates a batch (contract: WIRE 1.5 and 8)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from slackwater.wire.files import LONGEST_LIFE_SECONDS, SHORTEST_LIFE_SECONDS

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
WINDOW: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
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


def _window(text: str) -> str:
    if window_of(text) is None:
        raise PydanticCustomError("invalid_window", "Supported are 1s to 30d, such as '24h', '30m' or '7d'.")
    return text


def _clean(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("invalid_characters", "A NUL character is not accepted here.")
    return text


Clean = Annotated[str, AfterValidator(_clean)]
MetadataKey = Annotated[str, StringConstraints(max_length=64), AfterValidator(_clean)]
MetadataValue = Annotated[str, StringConstraints(max_length=512), AfterValidator(_clean)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)]


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


class CreateBatch(Body):
    """The body of `POST /v1/batches`; `priority`, `on_invalid` and `webhook` are ours."""

    input_file_id: Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_clean)]
    endpoint: Endpoint
    completion_window: Annotated[str, AfterValidator(_window)]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    priority: int = Field(0, ge=-100, le=100)
    on_invalid: Literal["fail", "skip"] = "fail"
    webhook: BatchWebhook | None = None

    @property
    def window(self) -> timedelta:
        window = window_of(self.completion_window)
        assert window is not None
        return window

    def metadata_json(self) -> dict[str, Any] | None:
        return None if self.metadata is None else dict(self.metadata)
