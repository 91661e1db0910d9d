"""The fake driver's library, and the script that says what its GPUs do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("fake_nvml.c")
LIBRARY: Final = "libnvidia-ml.so.1"
FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}")


def build(folder: Path) -> Path:
    """Compile the library into `folder`, and return its path."""
    library = folder / LIBRARY
    subprocess.run(["gcc", *FLAGS, "-o", str(library), str(SOURCE)], check=True)
    return library


class Driver:
    """A driver in a folder of its own. What `set` was given holds until it is taken back; a running process sees it at once."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.home = folder
        self.script = folder / "script"
        self.place = folder / "lib"
        self.place.mkdir()
        self.built = library
        self.keys: dict[str, object] = {}
        self.install()
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """What makes a child process load this driver."""
        return dict(os.environ) | self.variables

    @property
    def variables(self) -> dict[str, str]:
        return {"FAKE_NVML": str(self.script), "LD_LIBRARY_PATH": str(self.place)}

    def set(self, keys: Mapping[str, object]) -> None:
        self.keys |= keys
        self._write()

    def unset(self, *keys: str) -> None:
        self.keys = {key: value for key, value in self.keys.items() if key not in keys}
        self._write()

    def remove(self) -> None:
        """Take the library away, as an uninstalled driver does."""
        (self.place / LIBRARY).unlink()

    def install(self) -> None:
        (self.place / LIBRARY).symlink_to(self.built)

    def _write(self) -> None:
        """Replace the script in one step: a reader sees the old one or the new one."""
        fresh = self.home / "script.new"
        fresh.write_text("".join(f"{key} {value}\n" for key, value in self.keys.items()))
        fresh.replace(self.script)
