"""What the embedded PostgreSQL finds in its way, and what it says of it."""

import socket
from pathlib import Path

import pytest

from slackwater.embedded import EmbeddedServerError, Postgres
from slackwater.embedded.accounts import account_for
from tests.integration.embedded.supervised import processes_of, query


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
