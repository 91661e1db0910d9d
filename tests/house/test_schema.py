"""The migrations make what `slackwater.storage.tables` says, and every table with a tenant is under row-level security."""

from __future__ import annotations

import psycopg

from slackwater.storage import migrate
from slackwater.storage.tables import METADATA

# Rows in every table that a later revision changes.
USED_SINCE_THE_FIRST = """
INSERT INTO tenant (public_id, name) VALUES ('ten_1', 'acme');
INSERT INTO project (tenant_id, public_id, name) SELECT id, 'proj_1', 'default' FROM tenant;
INSERT INTO batch (tenant_id, public_id, project_id, endpoint, input_file_id, output_file_id, error_file_id, state, completion_window,
                   expires_at, idempotency_key, idempotency_hash)
SELECT tenant_id, 'batch_1', id, '/v1/chat/completions', 'i', 'o', 'e', 3, '24h', now(), 'key', 'hash' FROM project;
INSERT INTO output_index SELECT tenant_id, id, 0, 9, 1, '{0}', '{0}' FROM batch;
INSERT INTO lease SELECT gen_random_uuid(), 1, tenant_id, id, 1, 0, 1, 0, 0, 0, 0, false, now() FROM batch;
"""


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


def test_a_database_in_use_since_the_first_revision_becomes_the_same(dsn: str) -> None:
    new = _described(dsn)
    migrate.downgrade(dsn, "pre_0001")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(USED_SINCE_THE_FIRST)

    migrate.upgrade(dsn)

    assert _described(dsn) == new
    assert migrate.drift(dsn) == []
    with psycopg.connect(dsn) as connection:
        kept = connection.execute(
            "SELECT public_id, output_order, lines, called_at FROM batch b JOIN output_index o ON o.batch_id = b.id"
            " JOIN lease l ON l.batch_id = b.id"
        ).fetchall()
    assert kept == [("batch_1", "input", 1, None)]


def _described(dsn: str) -> list[tuple[object, ...]]:
    """Columns, constraints, indexes, functions, policies and grants, without the tables of Alembic and the weeks' partitions."""
    queries = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace",
        "SELECT proname, prosrc, proacl::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT tablename, policyname, roles::text, qual, with_check FROM pg_policies",
        "SELECT table_name, grantee, privilege_type FROM information_schema.table_privileges WHERE table_schema = 'public' AND grantee LIKE 'sw%'",
    )
    with psycopg.connect(dsn) as connection:
        rows = [row for query in queries for row in connection.execute(query.encode())]
    return sorted((r for r in rows if r[0] != "alembic_version" and "_w0" not in str(r)), key=str)
