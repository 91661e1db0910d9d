"""One part as a child process: started again when it dies, stopped when told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slackwater.cli.up import lifeline
from slackwater.cli.up.child_log import last_word, open_log

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0


def pause_before(deaths_in_a_row: int) -> float:
    """Seconds to wait before the next start: twice as long after each death, up to a limit."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (deaths_in_a_row - 1))


@dataclass
class Child:
    """The process of one part. `arguments` are those of the `slackwater` command; `said` gets its lines of standard output."""

    name: str
    arguments: list[str]
    environment: Mapping[str, str]
    log: Path
    tell: Callable[[str], None]
    said: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    deaths: int = 0
    _process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        """Keep the part running until `stop` is called and it has ended."""
        while not self.stopping.is_set():
            began = time.monotonic()
            status = await self._run_once_surely()
            if not self.stopping.is_set():
                self.deaths = 1 if time.monotonic() - began > HEALTHY_SECONDS else self.deaths + 1
                await self._pause(status)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, for good."""
        self.stopping.set()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _run_once_surely(self) -> int:
        """As `_run_once`; what keeps it from being started or heard counts as a death, and the process does not outlive it."""
        try:
            return await self._run_once()
        except (OSError, ValueError) as error:
            self.tell(f"{self.name}: {type(error).__name__}: {error}")
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                return await self._process.wait()
            return 1

    async def _run_once(self) -> int:
        """Start it, pass on what it says, and wait for its end; returns its exit status."""
        standard_input, lifeline_end = os.pipe()
        try:
            self._process = await self._spawn(standard_input)
            if self.stopping.is_set():
                self.stop()
            assert self._process.stdout is not None
            async for line in self._process.stdout:
                self.said.put_nowait(line.decode(errors="replace").strip())
            return await self._process.wait()
        finally:
            os.close(lifeline_end)

    async def _spawn(self, standard_input: int) -> asyncio.subprocess.Process:
        """In a session of its own, so that a terminal's Ctrl-C reaches `up` alone; never with modules of the working directory."""
        error = open_log(self.log)
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "slackwater.cli.main", *self.arguments,
                stdin=standard_input, stdout=asyncio.subprocess.PIPE, stderr=error,
                env=lifeline.given(self.environment), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(error)
            os.close(standard_input)

    async def _pause(self, status: int) -> None:
        seconds = pause_before(self.deaths)
        self.tell(f"{self.name} ended ({_ending(status)}): {last_word(self.log)}; again in {seconds:g} s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)


def _ending(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
