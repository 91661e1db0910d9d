"""The migrations make what `slackwater.storage.tables` says, and every table with a tenant is under row-level security."""

from __future__ import annotations

import psycopg

from slackwater.storage import migrate
from slackwater.storage.tables import METADATA


def test_migrations_make_the_tables(dsn: str) -> None:
    assert migrate.drift(dsn) == []


def test_a_difference_is_seen(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE price ADD COLUMN surprise integer")

    assert len(migrate.drift(dsn)) == 1


def test_every_tenants_table_has_a_policy_for_the_api(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        secured = {
            name
            for (name,) in connection.execute(
                "SELECT c.relname FROM pg_class c JOIN pg_policy p ON p.polrelid = c.oid "
                "WHERE c.relrowsecurity AND 'sw_app' = ANY (SELECT rolname FROM pg_roles WHERE oid = ANY (p.polroles))"
            )
        }

    assert {t.name for t in METADATA.tables.values() if "tenant_id" in t.columns} <= secured


def test_down_and_up_again_is_the_same(dsn: str) -> None:
    before = _described(dsn)
    migrate.downgrade(dsn)
    assert _described(dsn) == []
    migrate.upgrade(dsn)

    assert _described(dsn) == before


def _described(dsn: str) -> list[tuple[object, ...]]:
    """Columns, indexes, policies and grants, without the tables of Alembic and the weeks' partitions."""
    queries = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT tablename, policyname, roles::text, qual, with_check FROM pg_policies",
        "SELECT table_name, grantee, privilege_type FROM information_schema.table_privileges WHERE table_schema = 'public' AND grantee LIKE 'sw%'",
    )
    with psycopg.connect(dsn) as connection:
        rows = [row for query in queries for row in connection.execute(query.encode())]
    return sorted((r for r in rows if r[0] != "alembic_version" and "_w0" not in str(r)), key=str)
