"""Running the product's commands as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SLACKWATER: Final = (sys.executable, "-m", "slackwater.cli.main")


def environment(**values: str) -> dict[str, str]:
    """That of this process, without settings of the product but `values`, and with this source tree's code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | values


def run(*arguments: str, env: Mapping[str, str], seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command of `slackwater` to its end."""
    return subprocess.run(
        [*SLACKWATER, *arguments], env=env, capture_output=True, text=True, timeout=seconds, check=False
    )


def start(*arguments: str, env: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command of `slackwater` and leave it running."""
    return subprocess.Popen([*SLACKWATER, *arguments], env=env, **options)


def processes_of(mark: str) -> dict[int, str]:
    """Living processes (no zombies) that name `mark` in their command line, environment or working directory."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and (command := _mentions(entry, mark)):
            found[int(entry.name)] = command
    return found


def _mentions(process: Path, mark: str) -> str:
    try:
        command = (process / "cmdline").read_bytes()
        texts = (command, (process / "environ").read_bytes(), os.readlink(process / "cwd").encode())
        is_zombie = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return ""
    if is_zombie or not any(mark.encode() in text for text in texts):
        return ""
    return command.replace(b"\0", b" ").decode(errors="replace")
