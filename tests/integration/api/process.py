"""An API process of its own, as an operator runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.api.conftest import MASTER_KEY

CODE = "from api.server import serve; from slackwater.settings import settings; serve(settings())"


@dataclass(frozen=True)
class ApiProcess:
    url: str
    process: subprocess.Popen[str]

    def memory(self, name: str = "VmHWM") -> int:
        """Bytes: by default the most this process ever had resident."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise LookupError(name)


@contextmanager
def api_process(dsn: str, **settings: str) -> Iterator[ApiProcess]:
    """Runs until the end of the block at the latest. `settings` are variables of its environment."""
    environment = os.environ | {
        "SLACKWATER_DATABASE_URL": dsn,
        "SLACKWATER_MASTER_KEY": MASTER_KEY,
        "SLACKWATER_PORT": "0",
        **settings,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", CODE],
        cwd=Path(__file__).parents[3],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            word, url = process.stdout.readline().split()
            assert word == "ready"
            yield ApiProcess(url, process)
        finally:
            process.kill()
