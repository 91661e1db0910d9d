"""`slackwater up` as a person runs it, for the tests that need one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from openai import OpenAI

from tests.processes import environment, processes_of, start
from tests.scenario import chat_line
from tests.waiting import until

READY_SECONDS = 120.0
ENV_LINES = re.compile(r"SLACKWATER_URL=(http://127\.0\.0\.1:\d+)\nSLACKWATER_API_KEY=(sk-\S+)\n")


@dataclass
class Up:
    """A running `slackwater up --print-env`."""

    process: subprocess.Popen[bytes]
    data: Path
    out: IO[bytes]
    err: IO[bytes]
    url: str = ""
    key: str = ""

    def printed(self, stream: IO[bytes]) -> str:
        return os.pread(stream.fileno(), 1 << 20, 0).decode()

    def wait_ready(self) -> None:
        until(lambda: self.printed(self.out) or self.process.poll() is not None, READY_SECONDS, about=self._errors)
        lines = ENV_LINES.fullmatch(self.printed(self.out))
        assert lines, self._errors()
        self.url, self.key = lines.groups()

    def _errors(self) -> str:
        return self.printed(self.err)

    def end(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Signal it, wait for its end, and return how many seconds that took."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(60)
        return time.monotonic() - began

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=2)

    def complete_a_batch(self, lines: int = 3, *, model: str = "echo") -> str:
        """Submit a batch and wait until it is completed; returns its id."""
        with self.client() as client:
            data = b"\n".join(chat_line(f"r{n}", model=model) for n in range(lines))
            file = client.files.create(file=("in.jsonl", data), purpose="batch")
            batch = client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            until(lambda: client.batches.retrieve(batch.id).status == "completed", about=self._errors)
            return batch.id

    def output_of(self, batch_id: str) -> set[str]:
        """The custom_ids of a completed batch's output."""
        with self.client() as client:
            batch = client.batches.retrieve(batch_id)
            assert batch.output_file_id
            text = client.files.content(batch.output_file_id).text
        return {json.loads(line)["custom_id"] for line in text.splitlines()}

    def is_gone(self) -> bool:
        return not processes_of(str(self.data))


@contextmanager
def up(
    data: Path, *arguments: str, engine: str = "echo", lent: Mapping[str, Any] | None = None, **settings: str
) -> Iterator[Up]:
    """`slackwater up` on `data`, ready; it is told to end at the end. `lent` says as which user it runs."""
    command = ("up", "--data", str(data), "--engine", engine, "--print-env", *(arguments or ("--port", "0")))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        env = environment(SLACKWATER_DATA_DIR=str(data), **settings)
        process = start(*command, env=env, stdout=out, stderr=err, stdin=subprocess.DEVNULL, **(lent or {}))
        running = Up(process, data, out, err)
        try:
            running.wait_ready()
            yield running
        finally:
            process.terminate()
            process.wait(60)
            until(running.is_gone, 30, about=lambda: str(processes_of(str(data))))
