"""Folders in which an embedded PostgreSQL may live."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that the user which root lends to PostgreSQL may enter."""
    with tempfile.TemporaryDirectory(prefix="slackwater-up-", dir="/tmp" if os.geteuid() == 0 else None) as name:
        Path(name).chmod(0o755)
        yield Path(name)
