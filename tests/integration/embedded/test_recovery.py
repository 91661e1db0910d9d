"""Every way the embedded PostgreSQL can die or be left behind, and its next start."""

import contextlib
import os
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest

from slackwater.embedded import EmbeddedServerError, Postgres
from slackwater.embedded.accounts import account_for
from tests.integration.embedded.supervised import kill, processes_of, query, supervised
from tests.waiting import until


@pytest.mark.parametrize("text", ["", "not a pid\n", "{dead}\n{data}\n0\n1\n\n127.0.0.1\n1 1\nready\n"])
def test_a_stale_pid_file_is_no_hindrance(server: Postgres, text: str) -> None:
    server.stop()
    with subprocess.Popen(["true"]) as ended:
        pass
    (server.data / "postmaster.pid").write_text(text.format(dead=ended.pid, data=server.data))

    server.start()

    assert query(server, "SELECT count(*) FROM kept") == [(0,)]


def test_a_recycled_pid_is_no_hindrance_and_its_new_owner_unharmed(server: Postgres) -> None:
    server.stop()
    account = account_for(server.data)
    with account.spawn(["sleep", "600"]) as innocent:
        (server.data / "postmaster.pid").write_text(f"{innocent.pid}\n{server.data}\n0\n1\n\n127.0.0.1\n1 1\n")
        try:
            server.start()
            assert query(server, "SELECT count(*) FROM kept") == [(0,)]
            assert innocent.poll() is None
        finally:
            innocent.kill()


def test_a_pid_recycled_by_another_postgresql_is_left_alone(server: Postgres, place: Path) -> None:
    server.stop()
    with Postgres(place / "other") as other:
        (server.data / "postmaster.pid").write_text(f"{other.pid}\n{server.data}\n0\n1\n\n127.0.0.1\n1 1\n")

        server.start()

        assert query(server, "SELECT count(*) FROM kept") == [(0,)]
        assert query(other, "SELECT 1") == [(1,)]


def test_committed_rows_survive_the_postmasters_death_while_rows_are_written(server: Postgres) -> None:
    committed: list[int] = []
    enough = threading.Event()

    def write() -> None:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(server.dsn) as connection:
            for number in range(1_000_000):
                connection.execute("INSERT INTO kept VALUES (%s)", (number,))
                connection.commit()
                committed.append(number)
                if number == 200:
                    enough.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert enough.wait(60)
    kill(server.pid)
    until(lambda: not server.is_running())
    server.start()
    writer.join(60)

    kept = [number for (number,) in query(server, "SELECT number FROM kept ORDER BY number")]
    assert len(committed) > 200
    assert kept[: len(committed)] == committed


def test_a_busy_backend_without_its_postmaster_is_ended_first(server: Postgres) -> None:
    def work() -> None:
        with contextlib.suppress(psycopg.OperationalError):
            query(server, "SELECT count(*) FROM generate_series(1, 100000000000) AS busy")

    busy = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%AS busy' AND pid <> pg_backend_pid()"
    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: query(server, busy, admin=True) != [])
    ((backend,),) = query(server, busy, admin=True)
    kill(server.pid)
    until(lambda: not server.is_running())

    server.start()
    worker.join(60)

    assert backend not in processes_of(server)
    assert query(server, "SELECT count(*) FROM kept") == [(0,)]


def test_everything_killed_at_once_recovers(place: Path) -> None:
    home = place / "home"
    with supervised(home) as (supervisor, _):
        server = Postgres(home)
        victims = [supervisor.pid, *processes_of(server)]
        for pid in victims:
            kill(pid)
        supervisor.wait()

    with server:
        assert query(server, "SELECT 1") == [(1,)]
        assert not set(victims) & set(processes_of(server))


def test_a_server_whose_supervisor_died_is_replaced(place: Path) -> None:
    with supervised(place / "home") as (supervisor, orphan):
        kill(supervisor.pid)
        supervisor.wait()
    heard: list[str] = []

    with Postgres(place / "home", progress=heard.append) as server:
        assert server.pid != orphan
        assert orphan not in processes_of(server)
        assert query(server, "SELECT 1") == [(1,)]

    assert any("still runs" in line for line in heard)


def test_a_second_supervisor_is_told_who_is_first(place: Path) -> None:
    with (
        supervised(place / "home") as (first, pid),
        pytest.raises(EmbeddedServerError, match=f"already served by process {first.pid};"),
    ):
        Postgres(place / "home").start()

    assert first.returncode is not None
    assert pid != first.pid


def test_of_two_supervisors_at_once_one_serves(place: Path) -> None:
    servers = [Postgres(place / "home") for _ in range(2)]
    failed: list[str] = []
    together = threading.Barrier(2)

    def start(server: Postgres) -> None:
        together.wait()
        try:
            server.start()
        except EmbeddedServerError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=start, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    running = [server for server in servers if server.is_running()]
    try:
        assert len(running) == 1
        assert [f"process {os.getpid()};" in text for text in failed] == [True]
        assert query(running[0], "SELECT 1") == [(1,)]
    finally:
        for server in running:
            server.stop()


def test_recovery_is_waited_for_and_told(server: Postgres, place: Path) -> None:
    server.stop()
    (server.data / "recovery.signal").touch()
    gate = place / "gate"
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        if "waiting for PostgreSQL" in text:
            gate.touch()

    restore = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; false"
    recovering = Postgres(server.home, progress=hear, settings={"restore_command": restore, "hot_standby": "off"})
    with recovering:
        assert query(recovering, "SELECT count(*) FROM kept") == [(0,)]

    assert any("starting archive recovery" in line or "database system" in line for line in heard)
