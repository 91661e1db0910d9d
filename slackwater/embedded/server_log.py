"""What the server wrote since it was started: the reason of a failed start, the progress of a long one."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slackwater.embedded.home import Home

_TAIL_BYTES = 16 << 10


@dataclass
class ServerLog:
    """Reads the logs of one start only: it remembers how long each file was before."""

    home: Home
    _lengths: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lengths = {file: file.stat().st_size for file in self._files()}

    def lines(self) -> list[str]:
        """The last lines of this start, without time and pid."""
        return [line.partition("] ")[2] or line for file in self._files() for line in self._new_lines(file)]

    def _files(self) -> Iterator[Path]:
        if self.home.startup_log.exists():
            yield self.home.startup_log
        yield from sorted(self.home.log.glob("*.log"), key=lambda file: file.stat().st_mtime)

    def _new_lines(self, file: Path) -> list[str]:
        with file.open("rb") as source:
            length = source.seek(0, os.SEEK_END)
            known = self._lengths.get(file, 0)
            source.seek(max(known if known <= length else 0, length - _TAIL_BYTES))
            return source.read().decode(errors="replace").splitlines()


def failure_reason(lines: list[str]) -> str:
    """The FATAL or PANIC lines if there are any, else the last five."""
    grave = [line for line in lines if line.startswith(("FATAL:", "PANIC:", "LOG:  could not"))]
    return "\n".join((grave or lines)[-5:]) or "it printed nothing"


def port_was_taken(lines: list[str]) -> bool:
    """Whether the server ended because another process has its port."""
    return any("Address already in use" in line for line in lines)


def recovery_progress(lines: list[str]) -> str | None:
    """The last thing the server said of its recovery, if it said anything."""
    told = [line.removeprefix("LOG:").strip() for line in lines if line.startswith("LOG:")]
    return told[-1] if told else None
