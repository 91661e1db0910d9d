"""Folders in which an embedded PostgreSQL may live, and a model server for `--engine URL`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream import Upstream


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that the user which root lends to PostgreSQL may enter."""
    with tempfile.TemporaryDirectory(prefix="slackwater-up-", dir="/tmp" if os.geteuid() == 0 else None) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def upstream() -> Iterator[str]:
    """The URL of a model server with one model behind a key."""
    with Upstream(models=("far-away",), api_key="upstream-key") as upstream:
        yield f"{upstream.url}/v1"
