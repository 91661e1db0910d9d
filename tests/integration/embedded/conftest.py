"""A directory for a server, and a server in it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.embedded import Postgres
from tests.integration.embedded.supervised import query


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that a system user may enter, unlike tmp_path, which pytest closes."""
    made = Path(tempfile.mkdtemp(prefix="slackwater test "))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def server(place: Path) -> Iterator[Postgres]:
    """A running server with one table `kept`."""
    with Postgres(place / "home") as running:
        query(running, "CREATE TABLE kept (number bigint PRIMARY KEY)")
        yield running
