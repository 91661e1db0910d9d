"""JSON bodies that peers accept, mangle, or answer with a 500."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from slackwater.conformance.expect import error_of, holds, told
from slackwater.conformance.registry import Group, Test
from slackwater.conformance.session import CHAT, NO_FILE, Session

body = Group("json", "1.11")

GOOD: Final = json.dumps({"input_file_id": NO_FILE, "endpoint": CHAT, "completion_window": "24h"})


def _with(member: str) -> bytes:
    return f"{GOOD[:-1]}, {member}}}".encode()


CASES: Final[Mapping[str, tuple[str, bytes]]] = {
    "not_json": ("a body that is not JSON", b"{"),
    "empty_body": ("an empty body", b""),
    "not_an_object": ("an array", b"[]"),
    "duplicate_key": ("a key that is there twice", _with('"endpoint": "/v1/embeddings"')),
    "nan": ("NaN", _with('"metadata": {"a": NaN}')),
    "infinity": ("Infinity", _with('"priority": Infinity')),
    "lone_surrogate": ("a lone surrogate", _with('"metadata": {"a": "\\ud800"}')),
    "nul_in_metadata": ("a NUL in a metadata value", _with('"metadata": {"a": "x\\u0000y"}')),
    "invalid_utf8": ("bytes that are not UTF-8", GOOD[:-1].encode() + b', "metadata": {"a": "\xff"}}'),
    "utf16": ("UTF-16", GOOD.encode("utf-16")),
    "deep_nesting": ("100,000 levels", b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "huge_number": ("a number of 5,000 digits", _with('"priority": ' + "9" * 5_000)),
    "trailing_bytes": ("a second value behind the first", GOOD.encode() + b"{}"),
}


def _refusing(sent: bytes) -> Test:
    def test(session: Session) -> None:
        reply = session.post_raw("/v1/batches", sent)
        holds(reply.status_code == 400, told(reply))
        error_of(reply)

    return test


for _word, (_what, _sent) in CASES.items():
    body.add(f"{_word}_is_400", f"400 with the envelope for {_what}", _refusing(_sent))


@body.check("400, 413 or 415 with the envelope for a compressed body that is none")
def broken_gzip(session: Session) -> None:
    reply = session.post_raw("/v1/batches", b"no gzip", **{"content-encoding": "gzip"})
    holds(reply.status_code in (400, 413, 415), told(reply))
    error_of(reply)
