"""`slackwater up` as a person runs it: a process, its output, its end."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest
from openai import OpenAI

from tests.processes import SLACKWATER, environment, processes_of, run, start, until
from tests.scenario import chat_line

STOP_SECONDS = 5.0
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

    def complete_a_batch(self, *, model: str = "echo") -> str:
        """Submit a batch and wait until it is completed; returns its id."""
        with self.client() as client:
            data = b"\n".join(chat_line(f"r{n}", model=model) for n in range(3))
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
def up(data: Path, *, engine: str = "echo", lent: Mapping[str, Any] | None = None, **settings: str) -> Iterator[Up]:
    """`slackwater up` on `data`, ready; it is ended at the end. `lent` says as which user it runs."""
    command = ("up", "--data", str(data), "--engine", engine, "--print-env", "--port", "0")
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


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that the user which root lends to PostgreSQL may enter."""
    with tempfile.TemporaryDirectory(prefix="slackwater-up-", dir="/tmp" if os.geteuid() == 0 else None) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_batch_completes_and_nothing_is_left(folder: Path, number: signal.Signals) -> None:
    with up(folder / "data") as running:
        batch_id = running.complete_a_batch()
        assert running.output_of(batch_id) == {"r0", "r1", "r2"}
        seconds = running.end(number)
        assert running.process.returncode == 0
        assert seconds < STOP_SECONDS
        assert running.is_gone()
        assert ENV_LINES.fullmatch(running.printed(running.out))


def test_a_second_start_knows_the_key_and_the_batches(folder: Path) -> None:
    with up(folder / "data") as first:
        batch_id = first.complete_a_batch()
    with up(folder / "data") as second:
        assert second.key == first.key
        assert second.output_of(batch_id) == {"r0", "r1", "r2"}


def test_a_killed_up_leaves_nothing_running(folder: Path) -> None:
    with up(folder / "data") as running:
        batch_id = running.complete_a_batch()
        running.process.kill()
        running.process.wait(10)
        until(running.is_gone, 20, about=lambda: str(processes_of(str(running.data))))
    with up(folder / "data") as again:
        assert again.output_of(batch_id) == {"r0", "r1", "r2"}


def test_a_start_right_after_a_kill_serves(folder: Path) -> None:
    with up(folder / "data") as running:
        running.process.kill()
        running.process.wait(10)
        with up(folder / "data") as again:
            again.complete_a_batch()


def test_a_killed_part_comes_back(folder: Path) -> None:
    with up(folder / "data") as running:
        for part in ("worker", "api", "duties", "dispatch", "postgres"):
            (pid,) = _pids(running, part)
            os.kill(pid, signal.SIGKILL)
            until(partial(_is_back, running, part, pid))
        until(lambda: _answers(running))
        running.complete_a_batch()
        assert running.end() < STOP_SECONDS
        told = running.printed(running.err)
        assert all(f"{part} ended (killed by SIGKILL)" in told for part in ("worker", "api", "duties", "dispatch"))
        assert "PostgreSQL ended: starting it again" in told


def test_two_at_once_in_two_places(folder: Path) -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(up(folder / name)) for name in ("one", "two")]
        assert both[0].url != both[1].url
        assert both[0].key != both[1].key
        for running in both:
            running.complete_a_batch()


def test_two_in_one_place_are_refused(folder: Path) -> None:
    with up(folder / "data") as running:
        second = run("up", "--data", str(folder / "data"), "--engine", "echo", "--port", "0", env=environment())
        assert second.returncode == 1
        assert f"already served by process {running.process.pid}" in second.stderr
        assert second.stdout == ""
        running.complete_a_batch()


def test_a_taken_port_that_was_asked_for_is_an_error(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("up", "--data", str(folder / "data"), "--engine", "echo", "--port", str(port), env=environment())
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert not (folder / "data").exists()


def test_an_external_database_wins(folder: Path, dsn: str) -> None:
    with up(folder / "data", SLACKWATER_DATABASE_URL=dsn) as running:
        running.complete_a_batch()
        assert not (folder / "data" / "postgres").exists()
        assert running.end() < STOP_SECONDS


def test_what_it_prints_for_a_person(folder: Path, dsn: str) -> None:
    env = environment(SLACKWATER_DATABASE_URL=dsn)
    command = ("up", "--data", str(folder / "data"), "--engine", "echo", "--port", "0")
    with tempfile.TemporaryFile() as out:
        process = start(*command, env=env, stdout=out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda: b"Ctrl-C" in os.pread(out.fileno(), 1 << 16, 0), READY_SECONDS)
        process.terminate()
        assert process.wait(10) == 0
        text = os.pread(out.fileno(), 1 << 16, 0).decode()
    key = (folder / "data" / "api_key").read_text().strip()
    assert key in text
    assert "Slackwater is up at http://127.0.0.1:" in text
    assert "client.batches.create(" in text
    for secret in ("api_key", "master_key"):
        assert (folder / "data" / secret).stat().st_mode & 0o777 == 0o600


def test_a_start_can_be_interrupted(folder: Path) -> None:
    data = folder / "data"
    with tempfile.TemporaryFile() as err:
        command = ("up", "--data", str(data), "--engine", "echo", "--port", "0")
        process = start(*command, env=environment(), stdout=subprocess.DEVNULL, stderr=err)
        until(lambda: (data / "postgres" / "data").exists(), READY_SECONDS)
        began = time.monotonic()
        process.terminate()
        assert process.wait(30) == 130
        assert time.monotonic() - began < STOP_SECONDS
    assert not processes_of(str(data))
    with up(data) as running:
        running.complete_a_batch()


def _may_run_python(user: int) -> bool:
    try:
        done = subprocess.run([*SLACKWATER, "--help"], env=environment(), user=user, capture_output=True, check=False)
    except PermissionError:
        return False
    return done.returncode == 0


def _pids(running: Up, part: str) -> list[int]:
    """Of a part of `up`: its direct children."""
    mark = "/postgres -D " if part == "postgres" else f"slackwater.cli.main {part}"
    parent = running.process.pid
    return [p for p, command in processes_of(str(running.data)).items() if mark in command and _parent(p) == parent]


def _is_back(running: Up, part: str, killed: int) -> bool:
    return any(pid != killed for pid in _pids(running, part))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _answers(running: Up) -> bool:
    import httpx2

    try:
        return httpx2.get(f"{running.url}/readyz", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


class _Upstream(BaseHTTPRequestHandler):
    """A model server with one model behind a key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": "far-away"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": asked["model"]}
        self._answer(200, head | {"choices": [choice], "usage": usage})

    def _answer(self, status: int, value: dict[str, object]) -> None:
        if self.headers["authorization"] != "Bearer upstream-key":
            status, value = 401, {}
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def upstream() -> Iterator[str]:
    """The URL of a model server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Upstream) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        serving.join()


def test_an_upstream_is_asked_for_its_models(folder: Path, dsn: str, upstream: str) -> None:
    key = "upstream-key"
    for _ in range(2):
        place = folder / "data"
        with up(place, engine=upstream, SLACKWATER_DATABASE_URL=dsn, SLACKWATER_ENGINE_API_KEY=key) as running:
            running.complete_a_batch(model="far-away")
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT name, url FROM instance").fetchall()
    assert rows == [(upstream.removeprefix("http://").removesuffix("/v1"), upstream.removesuffix("/v1"))]


def test_an_upstream_that_refuses_the_key_is_an_error(folder: Path, upstream: str) -> None:
    done = run("up", "--data", str(folder / "data"), "--engine", upstream, env=environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert "/v1/models answers 401" in done.stderr
    assert not (folder / "data").exists()


def test_a_part_that_does_not_start_ends_it_with_the_reason(folder: Path, dsn: str) -> None:
    values = {"SLACKWATER_DATABASE_URL": dsn, "SLACKWATER_DATA_DIR": str(folder / "data")}
    env = environment(**values, SLACKWATER_WEBHOOK_ALLOW='["no network"]')
    done = run("up", "--engine", "echo", "--port", "0", "--print-env", env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "slackwater: dispatch does not start: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not processes_of(str(folder))


def test_a_new_database_gets_a_new_key(folder: Path, dsn: str) -> None:
    with up(folder / "data") as first:
        kept = first.key
    with up(folder / "data", SLACKWATER_DATABASE_URL=dsn) as other:
        assert other.key != kept
        other.complete_a_batch()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lend itself another user")
def test_another_user_than_root(folder: Path) -> None:
    """Root runs it as `nobody`; without root, every other test here has proved it already."""
    nobody = pwd.getpwnam("nobody")
    if not _may_run_python(nobody.pw_uid):
        pytest.skip("this interpreter is in a directory that other users may not enter")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    lent = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    with up(folder / "data", lent=lent) as running:
        running.complete_a_batch()
        assert (folder / "data").stat().st_uid == nobody.pw_uid
        assert (folder / "data").stat().st_mode & 0o777 == 0o700
        assert running.end() < STOP_SECONDS
