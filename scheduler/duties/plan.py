"""Validate the input of a batch and plan it: where each body lies, and in which order requests run.

Reading the file holds no row: a few chunks at a time are one transaction that only reads.
Planning is one transaction under the batch row's lock: a second run finds it done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import TupleRow, dict_row

from scheduler.duties import planned
from scheduler.duties.each import each
from slackwater.reader.limits import Limits
from slackwater.reader.request_line import LineError, RequestLine
from slackwater.reader.validate import FileValidator
from slackwater.settings import Settings

# One batch of each tenant a step: a tenant with many, or large ones, keeps no other waiting for more than one of them.
WAITING: Final = "SELECT tenant_id, min(id) FROM batch WHERE state = 0 GROUP BY tenant_id ORDER BY min(id) LIMIT 20"
BATCH: Final = "SELECT * FROM batch WHERE tenant_id = %s AND id = %s AND state = 0"
CHUNK: Final = "SELECT start, data FROM file_chunk WHERE tenant_id = %s AND file_id = %s AND n = %s"
SYNC_EVERY: Final = 16  # chunks to a transaction
MODELS: Final = """
SELECT m.name, m.id FROM model m
 WHERE m.is_open OR EXISTS (SELECT 1 FROM model_access a WHERE a.tenant_id = %s AND a.model_id = m.id)
"""


@dataclass
class Reading:
    """What was read of one input file. `starts` are the byte offsets of its chunks."""

    validator: FileValidator
    errors: list[LineError]
    requests: list[RequestLine] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    bytes: int = 0

    def place(self, request: RequestLine) -> tuple[int, int]:
        """The chunk in which a body begins, and its offset there."""
        chunk = bisect_right(self.starts, request.body_start) - 1
        return chunk, request.body_start - self.starts[chunk]

    def in_running_order(self) -> list[RequestLine]:
        """Grouped by model, then by shared prefix, each in the order of its first appearance; inside a group by line."""
        models: dict[int, dict[int, list[RequestLine]]] = {}
        for request in self.requests:
            models.setdefault(request.model_id, {}).setdefault(request.prefix_key, []).append(request)
        return [request for groups in models.values() for group in groups.values() for request in group]


def step(connection: Connection[TupleRow], settings: Settings) -> int:
    """Plan, or refuse, the oldest waiting batch of each tenant, unless another process is reading it."""
    rows = connection.execute(WAITING).fetchall()
    return each(rows, lambda row: _plan_alone(connection, settings, *row))


def _plan_alone(connection: Connection[TupleRow], settings: Settings, tenant_id: int, batch_id: int) -> int:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (batch_id,)).fetchone()
    if row is None or not row[0]:
        return 0
    try:
        return _plan(connection, settings, tenant_id, batch_id)
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", (batch_id,))


def _plan(connection: Connection[TupleRow], settings: Settings, tenant_id: int, batch_id: int) -> int:
    batch = connection.cursor(row_factory=dict_row).execute(BATCH, (tenant_id, batch_id)).fetchone()
    if batch is None:
        return 1
    if batch["file_id"] is None:
        return planned.fail(connection, batch, [_unknown_file(batch)])
    reading = read(connection, settings, batch)
    if not reading.validator.fatal and not _is_whole(connection, batch, reading):
        return planned.fail(connection, batch, [_unknown_file(batch)])
    if reading.validator.fatal or (reading.errors and batch["on_invalid"] == "fail"):
        return planned.fail(connection, batch, reading.validator.errors_data())
    return planned.start(connection, batch, reading)


def read(connection: Connection[TupleRow], settings: Settings, batch: dict[str, Any]) -> Reading:
    """Read and check every line of a batch's input; memory grows with the number of lines, not with their bytes."""
    limits = Limits(max_line_bytes=settings.max_line_bytes, max_requests=settings.max_requests)
    models: dict[str, int] = dict(connection.execute(MODELS, (batch["tenant_id"],)).fetchall())
    errors: list[LineError] = []
    validator = FileValidator(batch["endpoint"], models, limits, errors.append)
    reading = Reading(validator, errors)
    with closing(_chunks(connection, batch["tenant_id"], batch["file_id"])) as chunks:
        for start, data in chunks:
            reading.starts.append(start)
            reading.bytes += len(data)
            reading.requests.extend(validator.feed(data))
            if validator.fatal:
                break
    reading.requests.extend(validator.finish())
    return reading


def _is_whole(connection: Connection[TupleRow], batch: dict[str, Any], reading: Reading) -> bool:
    """False where the file was deleted, and is being purged, while the batch was made: what is left of it is not what the client meant."""
    row = connection.execute(
        "SELECT bytes FROM file WHERE tenant_id = %s AND id = %s", (batch["tenant_id"], batch["file_id"])
    ).fetchone()
    return row is not None and row[0] == reading.bytes


def _chunks(connection: Connection[TupleRow], tenant_id: int, file_id: int) -> Generator[tuple[int, bytes]]:
    """The chunks in order; the server sends the next one while this one is read."""
    cursor = connection.cursor(binary=True)
    with connection.pipeline() as pipeline:
        cursor.execute(CHUNK, (tenant_id, file_id, 0))
        for n in count(1):
            row = cursor.fetchone()
            if row is None:
                return
            if n % SYNC_EVERY == 0:
                pipeline.sync()
            cursor.execute(CHUNK, (tenant_id, file_id, n))
            yield row[0], row[1]


def _unknown_file(batch: dict[str, Any]) -> dict[str, str | int | None]:
    message = f"Cannot find file {batch['input_file_id']}, or this project does not have access to it."
    return {"code": "invalid_request", "line": None, "param": "file_id", "message": message}
