"""The log files of the parts: appended to by the part itself, so that no pipe can stall it or die under it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 16 << 20
TAIL_BYTES: Final = 8192


def open_log(file: Path) -> int:
    """A descriptor that appends to `file` (0600), for a part's standard error."""
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def trim(file: Path) -> None:
    """Keep a grown log as `NAME.1` and begin it anew. Who has it open goes on at its new end."""
    if file.exists() and file.stat().st_size > MOST_BYTES:
        shutil.copyfile(file, file.with_suffix(".log.1"))
        os.truncate(file, 0)


def last_word(file: Path) -> str:
    """The last line, as a person would want to read it."""
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - TAIL_BYTES))
        lines = log.read().decode(errors="replace").strip().splitlines()
    return _told(lines[-1]) if lines else "it said nothing"


def _told(line: str) -> str:
    try:
        event = json.loads(line)
    except ValueError:
        return line
    if not isinstance(event, dict):
        return line
    return " ".join(str(event[name]) for name in ("event", "exception", "error") if name in event)
