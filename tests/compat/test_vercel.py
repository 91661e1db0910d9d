"""The batch functions of the Vercel `ai` package, on Node, against a running server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from tests.compat import environments
from tests.compat.conftest import Running

SUITE = environments.HERE / "node" / "suite.mjs"
PARTS = re.findall(r"^  async (\w+)\(\)", SUITE.read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def outcomes(running: Running) -> dict[str, str | None]:
    folder = environments.node_modules()
    shutil.copy(SUITE, folder)
    env = {"PATH": os.environ["PATH"], "URL": running.url, "API_KEY": running.key, "MODEL": running.model}
    done = subprocess.run(
        ["node", "suite.mjs"], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, str | None] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("part", PARTS)
def test_the_client_works_unchanged(outcomes: dict[str, str | None], part: str) -> None:
    assert outcomes[part] is None, outcomes[part]


def test_every_part_ran(outcomes: dict[str, str | None]) -> None:
    assert list(outcomes) == PARTS
    assert len(PARTS) >= 6
