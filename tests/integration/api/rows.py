"""Rows that workers and duties write, for tests of what the API shows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater.lifecycle import BatchState
from slackwater.wire.batch import Counts

Worker = Connection[TupleRow]


@dataclass(frozen=True)
class Row:
    """The internal name of a batch."""

    tenant_id: int
    id: int


def row_of(worker: Worker, public_id: str) -> Row:
    found = worker.execute("SELECT tenant_id, id FROM batch WHERE public_id = %s", (public_id,)).fetchone()
    assert found is not None
    return Row(*found)


def store(worker: Worker, batch: Row, line: int, body: bytes, *, outcome: int = 0, tokens: int = 0) -> None:
    """One result and its count, in one transaction, as a worker does it."""
    with worker.transaction():
        worker.execute(
            "INSERT INTO result (tenant_id, batch_id, line, outcome, prompt_tokens, completion_tokens, attempt, body)"
            " VALUES (%s, %s, %s, %s, %s, %s, 1, %s)",
            (batch.tenant_id, batch.id, line, outcome, tokens, tokens, body),
        )
        column = "succeeded" if outcome == 0 else "failed"
        worker.execute(
            f"INSERT INTO progress (tenant_id, batch_id, slot, {column}, prompt_tokens, completion_tokens)"
            f" VALUES (%s, %s, 1, 1, %s, %s) ON CONFLICT (tenant_id, batch_id, slot) DO UPDATE SET"
            f" {column} = progress.{column} + 1, prompt_tokens = progress.prompt_tokens + excluded.prompt_tokens,"
            " completion_tokens = progress.completion_tokens + excluded.completion_tokens",
            (batch.tenant_id, batch.id, tokens, tokens),
        )


def run(worker: Worker, batch: Row, total: int) -> None:
    worker.execute(
        "UPDATE batch SET state = %s, in_progress_at = now(), total = %s WHERE id = %s",
        (int(BatchState.IN_PROGRESS), total, batch.id),
    )


def finish(worker: Worker, batch: Row, sides: dict[int, dict[int, bytes]], **changes: Any) -> None:
    """Freeze a batch as the finaliser does: its counts, and the index of each side that has a line."""
    for side, lines in sides.items():
        starts, at = [], 0
        for n, (line, body) in enumerate(sorted(lines.items())):
            if n % 256 == 0:
                starts.append((line, at))
            at += len(body)
        worker.execute(
            "INSERT INTO output_index (tenant_id, batch_id, side, bytes, lines, line, start) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (batch.tenant_id, batch.id, side, at, len(lines), [s[0] for s in starts], [s[1] for s in starts]),
        )
    counts = Counts(succeeded=len(sides.get(0, {})), failed=len(sides.get(1, {})))
    end(worker, batch, BatchState.COMPLETED, counts)


def index_nothing(worker: Worker, batch: Row) -> None:
    """An index that says that nothing was purged, and no more."""
    worker.execute("INSERT INTO output_index VALUES (%s, %s, 0, 0, 0, '{}', '{}')", (batch.tenant_id, batch.id))


def end(worker: Worker, batch: Row, state: BatchState, counts: Counts | None = None) -> None:
    from psycopg.types.json import Json

    worker.execute(
        f"UPDATE batch SET state = %s, {state.word}_at = now(), counts = %s WHERE id = %s",
        (int(state), Json((counts or Counts()).as_json()), batch.id),
    )
