"""What a background response may be asked for, and its input as items (contract: WIRE 3). Everything else in the body is the engine's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict
from pydantic_core import PydanticCustomError

from slackwater.wire.batch_request import Body, Metadata, Window, window_of
from slackwater.wire.response import ENDPOINT

PRIORITY: Final = 10
"""One that is waited for goes before batches, unless those say otherwise."""
DEFAULT_WINDOW: Final = "24h"
# Ours to read. What else never reaches an engine is taken out on its way there.
TAKEN_OUT: Final = frozenset({"background_options", "stream", "stream_options"})


def _none(value: object) -> object:
    if value is not None:
        raise PydanticCustomError("unsupported", "A response has no webhook of its own: subscribe an endpoint.")
    return value


class BackgroundOptions(Body):
    """`completion_window` is how long it may wait: 1 second to 30 days."""

    completion_window: Window = DEFAULT_WINDOW


class CreateResponse(Body):
    """What we read of the body of `POST /v1/responses` with `background: true`."""

    model_config = ConfigDict(extra="ignore")

    background: bool
    background_options: BackgroundOptions | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    stream: bool | None = None
    webhook: Annotated[Any, AfterValidator(_none)] = None

    @property
    def completion_window(self) -> str:
        return self.background_options.completion_window if self.background_options else DEFAULT_WINDOW

    @property
    def window(self) -> timedelta:
        window = window_of(self.completion_window)
        assert window is not None
        return window


def request_line(public_id: str, body: bytes) -> bytes:
    """The body as the one line of a batch. A raw line break, which JSON has between tokens only, becomes a carriage return."""
    head = f'{{"custom_id":{json.dumps(public_id)},"method":"POST","url":{json.dumps(ENDPOINT)},"body":'
    return head.encode() + body.strip(b" \t\r\n").replace(b"\n", b"\r") + b"}"


def input_items(line: bytes, batch_id: int) -> list[dict[str, Any]]:
    """The input of a stored request, the first item first, each with an id that is always the same."""
    asked = json.loads(line)["body"]["input"]
    given: Sequence[Any] = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    return [_item(item, f"{batch_id:x}_{n}") for n, item in enumerate(given) if isinstance(item, dict)]


def _item(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    kind = item.get("type") or "message"
    name = item["id"] if isinstance(item.get("id"), str) else f"{'msg' if kind == 'message' else 'item'}_{place}"
    if kind != "message":
        return {**item, "id": name}
    content, role = item.get("content"), item.get("role")
    if isinstance(content, str):
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    return {"type": kind, "status": "completed", **item, "id": name, "content": content}
