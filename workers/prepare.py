"""What of a body changes on its way to an engine (the published list, WIRE 8); every other byte is the client's."""

from __future__ import annotations

import json
from typing import Final

from slackwater.reader.splice import DROPPED, splice

_MARKS: Final = tuple(f'"{name}"'.encode() for name in sorted(DROPPED))


def prepare(body: bytes, *, name: str, upstream_name: str) -> bytes:
    """The bytes for the engine. The model's name changes only where the instance was registered with another one for it."""
    put = {} if name == upstream_name else {"model": json.dumps(upstream_name).encode()}
    if not put and not _may_hold_dropped(body):
        return body
    return splice(body, put=put, drop=DROPPED)


def _may_hold_dropped(body: bytes) -> bool:
    """False only where no dropped name can be a member: a name may be written with escapes."""
    return b"\\u" in body or any(mark in body for mark in _MARKS)
