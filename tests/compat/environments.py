"""Environments of the clients under test: made once under `build/compat` from pinned files, and kept while those stay the same."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
BUILD: Final = HERE.parents[1] / "build" / "compat"
INSTALL_SECONDS: Final = 600


def python(name: str) -> Path:
    """The interpreter of a virtual environment with `requirements-NAME.txt`, whose every file is pinned by hash."""
    requirements = HERE / f"requirements-{name}.txt"
    return _made(name, [requirements], lambda folder: _install(folder, requirements)) / "bin" / "python"


def node_modules() -> Path:
    """A folder with the packages of `node/package-lock.json`, and a copy of the suite beside them.

    Raises:
        FileNotFoundError: there is no npm; the suite is not left out in silence.
    """
    sources = [HERE / "node" / name for name in ("package.json", "package-lock.json")]
    return _made("node", sources, lambda folder: _npm_ci(folder, sources))


def _install(folder: Path, requirements: Path) -> None:
    _run(sys.executable, "-m", "venv", str(folder))
    pip = (
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-input",
    )
    _run(*pip, "--require-hashes", "--no-deps", "-r", str(requirements))


def _npm_ci(folder: Path, sources: list[Path]) -> None:
    folder.mkdir(parents=True)
    for source in sources:
        shutil.copy(source, folder)
    _run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", cwd=folder)


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def _made(name: str, sources: list[Path], make: Callable[[Path], None]) -> Path:
    """The folder for exactly these sources; an older one, or one that was not finished, is made anew."""
    folder, mark = BUILD / name, BUILD / f"{name}.made"
    wanted = hashlib.sha256(b"".join(source.read_bytes() for source in sources) + sys.version.encode()).hexdigest()
    with _alone(name):
        if not mark.exists() or mark.read_text() != wanted or not folder.exists():
            mark.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            mark.write_text(wanted)
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    BUILD.mkdir(parents=True, exist_ok=True)
    handle = os.open(BUILD / f"{name}.lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
