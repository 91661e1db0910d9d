"""How the server is reached: its two roles, their URLs, and the database of the application's role."""

from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from slackwater.embedded.cluster import ADMIN
from slackwater.embedded.home import Passwords

ROLE = DATABASE = "slackwater"

# Whoever took our port may accept and say nothing.
_CONNECT_SECONDS = 2

_IDENTITY = "SELECT current_setting('data_directory')"

_PRESENT = """
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %(role)s),
       EXISTS (SELECT FROM pg_database WHERE datname = %(database)s)
"""

_CREATE_ROLE = """
CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB CREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD {password}
"""


@dataclass(frozen=True)
class Access:
    """The server on one port of 127.0.0.1."""

    port: int
    passwords: Passwords

    @property
    def dsn(self) -> str:
        """For the application: owner of its database, allowed to create roles, no superuser."""
        return self._url(ROLE, self.passwords.application, DATABASE)

    @property
    def admin_dsn(self) -> str:
        """For the supervisor: the superuser."""
        return self._url(ADMIN, self.passwords.admin, "postgres")

    def unready(self, data: Path) -> str | None:
        """Why no query is answered yet; None once the server of `data`, and no other, answers one."""
        try:
            with self._admin() as connection:
                row = connection.execute(_IDENTITY).fetchone()
        except psycopg.OperationalError as error:
            return str(error)
        return None if row is not None and Path(row[0]) == data else "another server answers"

    def grant(self) -> None:
        """Make the role and its database where missing: a crash may have come between initdb and this."""
        names = {"role": sql.Identifier(ROLE), "database": sql.Identifier(DATABASE)}
        with self._admin() as connection:
            found = connection.execute(_PRESENT, {"role": ROLE, "database": DATABASE}).fetchone()
            role_exists, database_exists = found or (False, False)
            if not role_exists:
                password = sql.Literal(self.passwords.application)
                connection.execute(sql.SQL(_CREATE_ROLE).format(password=password, **names))
            if not database_exists:
                connection.execute(sql.SQL("CREATE DATABASE {database} OWNER {role}").format(**names))

    def _admin(self) -> psycopg.Connection[tuple[str, ...]]:
        return psycopg.connect(self.admin_dsn, autocommit=True, connect_timeout=_CONNECT_SECONDS)

    def _url(self, role: str, password: str, database: str) -> str:
        """Only scram is answered, so that whoever takes the port after a crash learns no password."""
        options = "sslmode=disable&gssencmode=disable&require_auth=scram-sha-256"
        return f"postgresql://{role}:{password}@127.0.0.1:{self.port}/{database}?{options}"
