"""`slackwater up` as a person runs it: a process, its output, its end."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.running import ENV_LINES, READY_SECONDS, Up, up
from tests.processes import SLACKWATER, environment, processes_of, run, start
from tests.waiting import until

STOP_SECONDS = 5.0


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
        running.process.wait(60)
        until(running.is_gone, 20, about=lambda: str(processes_of(str(running.data))))
    with up(folder / "data") as again:
        assert again.output_of(batch_id) == {"r0", "r1", "r2"}


def test_a_start_right_after_a_kill_serves(folder: Path) -> None:
    with up(folder / "data") as running:
        running.process.kill()
        running.process.wait(60)
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
        assert process.wait(60) == 0
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
        assert process.wait(60) == 130
        assert time.monotonic() - began < STOP_SECONDS
    assert not processes_of(str(data))
    with up(data) as running:
        running.complete_a_batch()


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
