"""Remove what nobody may read any more, in slices, and what processes left behind; make the partitions of the weeks ahead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from psycopg import Connection, errors
from psycopg.rows import TupleRow

from slackwater import ids
from slackwater.settings import Settings

WEEKS_AHEAD: Final = 4
# A file's bytes stay while an unfinished batch reads them; uploads that nobody goes on with are removed after an hour.
_IS_GONE: Final = """f.batch_id IS NULL
   AND (f.deleted_at IS NOT NULL OR f.expires_at < now() OR (NOT f.is_complete AND f.touched_at < now() - interval '1 hour'))
   AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.tenant_id = f.tenant_id AND b.file_id = f.id AND b.state IN (0, 1, 2, 6))"""
GONE_FILES: Final = f"""
SELECT f.tenant_id, f.id FROM file f
 WHERE {_IS_GONE}
   AND EXISTS (SELECT 1 FROM file_chunk c WHERE c.tenant_id = f.tenant_id AND c.file_id = f.id)
 LIMIT 20
"""
# Guarantees: from the commit of these two on nobody begins a batch over the file or writes to it; who did before is seen, and keeps it. Whoever
# makes a batch, or writes, holds the row until it commits: CLOSE asks anew once they have, so it is a statement of its own.
LOCK_FILE: Final = "SELECT FROM file WHERE tenant_id = %(tenant_id)s AND id = %(file_id)s FOR UPDATE"
CLOSE_FILE: Final = f"""
UPDATE file f SET deleted_at = coalesce(f.deleted_at, now()) WHERE f.tenant_id = %(tenant_id)s AND f.id = %(file_id)s AND {_IS_GONE}
"""
DROP_CHUNKS: Final = """
DELETE FROM file_chunk WHERE tenant_id = %(tenant_id)s AND file_id = %(file_id)s
   AND n IN (SELECT n FROM file_chunk WHERE tenant_id = %(tenant_id)s AND file_id = %(file_id)s LIMIT 64)
"""
# Final batches of which no file can be read any more; for a minute a statement may still be under way that saw them run.
GONE_BATCHES: Final = """
SELECT b.tenant_id, b.id FROM batch b
 WHERE b.state IN (3, 5, 7) AND b.total > 0 AND b.response IS NULL
   AND coalesce(b.completed_at, b.expired_at, b.cancelled_at) < now() - interval '1 minute'
   AND EXISTS (SELECT 1 FROM result r WHERE r.tenant_id = b.tenant_id AND r.batch_id = b.id)
   AND NOT EXISTS (SELECT 1 FROM file f WHERE f.tenant_id = b.tenant_id AND f.batch_id = b.id AND f.deleted_at IS NULL
                   AND (f.expires_at IS NULL OR f.expires_at > now()))
 LIMIT 20
"""
# First of all: who finds no index of a final batch does not take what is left of it for a whole file. The results go last: by them a purge that
# was broken off is known.
DROP_INDEX: Final = "DELETE FROM output_index WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s"
DROP_RESULTS: Final = """
DELETE FROM result WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s
   AND line IN (SELECT line FROM result WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s LIMIT 2000)
"""
DROP_REQUESTS: Final = """
DELETE FROM request WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s
   AND position IN (SELECT position FROM request WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s LIMIT 2000)
"""
# Responses that are gone, so long after that no run of them can still bring a result.
GONE_RESPONSES: Final = """
SELECT tenant_id, id, file_id FROM batch
 WHERE gone_at < now() - %(run_seconds)s * interval '1 second' - interval '1 minute' AND state IN (3, 4, 5, 7) ORDER BY gone_at LIMIT 200
"""
# In this order: a batch names its file. What it cost stays in the ledger, and its event with its deliveries.
DROP_RESPONSE: Final = (
    "DELETE FROM result WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s",
    "DELETE FROM request WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s",
    "DELETE FROM progress WHERE tenant_id = %(tenant_id)s AND batch_id = %(batch_id)s",
    "DELETE FROM batch WHERE tenant_id = %(tenant_id)s AND id = %(batch_id)s",
    "DELETE FROM file_chunk WHERE tenant_id = %(tenant_id)s AND file_id = %(file_id)s",
    "DELETE FROM file WHERE tenant_id = %(tenant_id)s AND id = %(file_id)s",
)
LEFT_BEHIND: Final = (
    "DELETE FROM decision WHERE at < now() - interval '1 hour'",
    "DELETE FROM \"grant\" WHERE at < now() - interval '1 minute'",
    """WITH x AS MATERIALIZED (
        SELECT s.id FROM segment s JOIN batch b ON b.tenant_id = s.tenant_id AND b.id = s.batch_id
         WHERE b.state IN (3, 4, 5, 7) FOR UPDATE OF s SKIP LOCKED)
       DELETE FROM segment s USING x WHERE s.id = x.id""",
    "DELETE FROM idempotency WHERE created_at < now() - interval '48 hours'",
    "DELETE FROM upload WHERE expires_at < now() - interval '1 day'",
    # Files that never became complete, and parts of uploads; their chunks go first.
    "DELETE FROM file f WHERE NOT f.is_complete AND f.batch_id IS NULL AND f.touched_at < now() - interval '1 hour' AND NOT EXISTS"
    " (SELECT 1 FROM file_chunk c WHERE c.tenant_id = f.tenant_id AND c.file_id = f.id)",
)

SILENT: Final = (
    "DELETE FROM gateway WHERE heartbeat_at < now() - interval '15 seconds'",
    "DELETE FROM live_load l WHERE NOT EXISTS (SELECT 1 FROM gateway g WHERE g.id = l.gateway_id)",
)


def forget_silent(connection: Connection[TupleRow], settings: Settings) -> int:
    """Strike off api processes that fell silent: until then their live traffic is unknown, and batch work holds."""
    return sum(connection.execute(statement).rowcount for statement in SILENT)


def step(connection: Connection[TupleRow], settings: Settings) -> int:
    """One round of cleaning; returns the number of files, batches and responses purged."""
    for statement in LEFT_BEHIND:
        connection.execute(statement)
    make_partitions(connection)
    files = connection.execute(GONE_FILES).fetchall()
    for tenant_id, file_id in files:
        where = {"tenant_id": tenant_id, "file_id": file_id}
        if _close(connection, where):
            _drain(connection, DROP_CHUNKS, where)
    batches = connection.execute(GONE_BATCHES).fetchall()
    for tenant_id, batch_id in batches:
        _drain(connection, DROP_INDEX, {"tenant_id": tenant_id, "batch_id": batch_id})
        _drain(connection, DROP_REQUESTS, {"tenant_id": tenant_id, "batch_id": batch_id})
        _drain(connection, DROP_RESULTS, {"tenant_id": tenant_id, "batch_id": batch_id})
    responses = connection.execute(GONE_RESPONSES, {"run_seconds": settings.request_timeout_seconds}).fetchall()
    for tenant_id, batch_id, file_id in responses:
        with connection.transaction():
            for statement in DROP_RESPONSE:
                connection.execute(statement, {"tenant_id": tenant_id, "batch_id": batch_id, "file_id": file_id})
    if batches or responses:
        _drop_partitions(connection)
    return len(files) + len(batches) + len(responses)


def make_partitions(connection: Connection[TupleRow], weeks: int = WEEKS_AHEAD) -> None:
    """Partitions for this week and the `weeks` after it, where they are missing."""
    this_week = ids.week_of(ids.at(datetime.now(UTC)))
    for week in range(this_week, this_week + weeks + 1):
        connection.execute("SELECT make_partitions(%s)", (ids.first_of_week(week),))


def _drop_partitions(connection: Connection[TupleRow], most: int = 60) -> None:
    """Drop the empty partitions of past weeks; one that is being read is left for the next time."""
    this_week = ids.week_of(ids.at(datetime.now(UTC)))
    for week in range(max(0, this_week - most), this_week - 1):
        try:
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '200ms'")
                connection.execute("SELECT drop_empty_partitions(%s)", (week,))
        except errors.LockNotAvailable:
            continue


def _close(connection: Connection[TupleRow], where: dict[str, int]) -> bool:
    """Keep everybody off a file whose bytes are about to go. False: somebody has begun with it."""
    with connection.transaction():
        connection.execute(LOCK_FILE, where)
        return connection.execute(CLOSE_FILE.encode(), where).rowcount == 1


def _drain(connection: Connection[TupleRow], statement: str, where: dict[str, int]) -> None:
    while connection.execute(statement.encode(), where).rowcount:
        pass
