"""The embedded PostgreSQL in order: how it is set up, who may enter, how it starts and stops."""

import os
import threading

import psycopg
import pytest

from slackwater.embedded import Postgres
from tests.integration.embedded.supervised import processes_of, query
from tests.waiting import until


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
