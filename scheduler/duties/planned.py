"""The two ends of validation, each one transaction: the batch runs with everything planned, or it is `failed` with its event."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties import told
from scheduler.queue import statements
from slackwater.lifecycle import BatchState, Outcome
from slackwater.reader.output_line import error_line
from slackwater.reader.request_line import LineError, RequestLine
from slackwater.wire.batch import Counts
from slackwater.wire.lines import line_id

if TYPE_CHECKING:
    from scheduler.duties.plan import Reading

SEGMENT: Final = 64
SLICE: Final = 2_000
# COPY is refused on a table with row-level security, whatever its policies allow.
REQUESTS: Final = """
INSERT INTO request (tenant_id, batch_id, position, line, chunk, start, length, model_id, est_tokens, custom_id)
SELECT %(tenant_id)b, %(id)b, x.position, x.line, x.chunk, x.start, x.length, x.model_id, x.est_tokens, x.custom_id
  FROM unnest(%(positions)s::int[], %(lines)s::int[], %(chunks)s::int[], %(starts)s::int[], %(lengths)s::int[], %(models)s::int[],
              %(ests)s::int[], %(custom_ids)b::text[]) AS x (position, line, chunk, start, length, model_id, est_tokens, custom_id)
"""
# Guarantees: whoever plans, refuses or cancels a batch holds its row; the loser sees that it waits no more and changes nothing.
# Priority and window may have changed since the batch was read.
LOCK: Final = """
SELECT priority, expires_at FROM batch WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND state = 0 FOR UPDATE
"""
START: Final = """
UPDATE batch SET state = 1, in_progress_at = now(), total = %(total)s WHERE tenant_id = %(tenant_id)s AND id = %(id)s
"""
FAIL: Final = """
UPDATE batch SET state = 4, failed_at = now(), errors = %(errors)s, counts = '{}' WHERE tenant_id = %(tenant_id)s AND id = %(id)s
"""
# A lane is shared by every batch of the tenant with this model, priority and quarter of an hour of deadline.
LANE: Final = """
INSERT INTO lane AS l (tenant_id, model_id, priority, deadline_at)
VALUES (%(tenant_id)s, %(model_id)s, %(priority)s, date_bin('15 minutes', %(expires_at)s, 'epoch'))
ON CONFLICT (tenant_id, model_id, priority, deadline_at) DO UPDATE SET priority = l.priority
RETURNING id
"""
# The price is the newest one that was valid when the batch was created; without one the model is free of charge.
BATCH_MODEL: Final = """
INSERT INTO batch_model (tenant_id, batch_id, model_id, lane_id, total, input_picodollars, cached_picodollars, output_picodollars)
SELECT %(tenant_id)s, %(id)s, %(model_id)s, %(lane_id)s, %(total)s,
       coalesce(p.input_picodollars, 0), coalesce(p.cached_picodollars, 0), coalesce(p.output_picodollars, 0)
  FROM (SELECT 1) one
  LEFT JOIN LATERAL (
    SELECT * FROM price WHERE model_id = %(model_id)s AND valid_from <= %(created_at)s ORDER BY valid_from DESC LIMIT 1) p ON true
"""
SEGMENTS: Final = """
INSERT INTO segment (tenant_id, batch_id, model_id, rank, first, n)
SELECT %(tenant_id)s, %(id)s, x.model_id, x.first, x.first, x.n
  FROM unnest(%(models)s::int[], %(firsts)s::int[], %(ns)s::smallint[]) AS x (model_id, first, n)
"""


def fail(connection: Connection[TupleRow], batch: dict[str, Any], errors: list[dict[str, str | int | None]]) -> int:
    """End a batch as `failed`, with its errors and its event."""
    with connection.transaction():
        if connection.execute(LOCK, batch).fetchone() is None:
            return 1
        told_errors = {"object": "list", "data": errors}
        connection.execute(FAIL, batch | {"errors": json.dumps(told_errors)})
        connection.execute("DELETE FROM file WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s", batch)
        told.tell(connection, batch, BatchState.FAILED, Counts(), told_errors)
    return 1


def start(connection: Connection[TupleRow], batch: dict[str, Any], reading: Reading) -> int:
    """Write requests and segments, and let the batch run. Refused lines of a `skip` batch get their error lines here."""
    requests = reading.in_running_order()
    with connection.transaction():
        now = connection.execute(LOCK, batch).fetchone()
        if now is None:
            return 1
        batch = batch | {"priority": now[0], "expires_at": now[1]}
        connection.execute("SELECT make_partitions(%(id)s)", batch)
        with connection.pipeline():  # The server inserts a slice while the next one is made.
            _insert_requests(connection, batch, reading, requests)
        _insert_segments(connection, batch, requests)
        _refuse_lines(connection, batch, reading.errors)
        connection.execute(START, batch | {"total": len(requests) + len(reading.errors)})
        connection.execute("SELECT pg_notify('slackwater', 'work')")
    return 1


def _insert_requests(
    connection: Connection[TupleRow], batch: dict[str, Any], reading: Reading, requests: Sequence[RequestLine]
) -> None:
    for begin in range(0, len(requests), SLICE):
        part = requests[begin : begin + SLICE]
        places = [reading.place(r) for r in part]
        values = {
            "tenant_id": batch["tenant_id"],
            "id": batch["id"],
            "positions": _array(range(begin, begin + len(part))),
            "lines": _array(r.line for r in part),
            "chunks": _array(chunk for chunk, _ in places),
            "starts": _array(start for _, start in places),
            "lengths": _array(r.body_length for r in part),
            "models": _array(r.model_id for r in part),
            "ests": _array(r.est_tokens for r in part),
            "custom_ids": [r.custom_id for r in part],
        }
        connection.execute(REQUESTS, values)


def _array(numbers: Iterable[int]) -> str:
    """As PostgreSQL writes an array: for many integers far cheaper than the driver's element by element."""
    return f"{{{','.join(map(str, numbers))}}}"


def _insert_segments(connection: Connection[TupleRow], batch: dict[str, Any], requests: Sequence[RequestLine]) -> None:
    cut = list(segments([r.model_id for r in requests]))
    totals: Counter[int] = Counter()
    for model_id, _, n in cut:
        totals[model_id] += n
    for model_id, total in sorted(totals.items()):  # One order for all planners: a lane is locked until the commit.
        values = batch | {"model_id": model_id, "total": total}
        lane = connection.execute(LANE, values).fetchone()
        assert lane is not None
        connection.execute(BATCH_MODEL, values | {"lane_id": lane[0]})
    columns = {"models": [s[0] for s in cut], "firsts": [s[1] for s in cut], "ns": [s[2] for s in cut]}
    connection.execute(SEGMENTS, batch | columns)


def segments(model_ids: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(model id, first position, n) of every segment: at most 64 consecutive positions of one model."""
    first = 0
    for model_id, group in groupby(model_ids):
        end = first + sum(1 for _ in group)
        for start in range(first, end, SEGMENT):
            yield model_id, start, min(SEGMENT, end - start)
        first = end


def _refuse_lines(connection: Connection[TupleRow], batch: dict[str, Any], errors: Sequence[LineError]) -> None:
    for begin in range(0, len(errors), SLICE):
        part = [e for e in errors[begin : begin + SLICE] if e.line is not None]
        bodies = [error_line(line_id(batch["id"], e.line or 0), _name(e), e.code, e.message) for e in part]
        values = {"tenant_id": batch["tenant_id"], "batch_id": batch["id"], "outcome": Outcome.FAILED.value}
        connection.execute(statements.FILL, values | {"lines": [e.line for e in part], "bodies": bodies})


def _name(error: LineError) -> str | None:
    """The custom_id an error line carries: none where it is another line's already, so that each stands once in the files."""
    return None if error.code == "duplicate_custom_id" else error.custom_id
