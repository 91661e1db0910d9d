"""Filling a database with work for benchmarks: through the product's own planning, or a million requests in seconds as the owner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater import ids

SEGMENT = 64
BODY = 100
MODEL = "tiny-chat"
BATCH = """
INSERT INTO batch (tenant_id, public_id, project_id, endpoint, input_file_id, file_id, output_file_id, error_file_id, completion_window,
                   state, total, expires_at)
VALUES (%(tenant_id)s, %(public_id)s, %(project_id)s, '/v1/chat/completions', 'in', %(file_id)s, 'out', 'err', '24h', %(state)s, %(total)s,
        now() + interval '24 hours')
RETURNING id
"""
LANE = """
WITH l AS (INSERT INTO lane (tenant_id, model_id, priority, deadline_at) VALUES (%(tenant_id)s, %(model_id)s, 0, now()) RETURNING id)
INSERT INTO batch_model SELECT %(tenant_id)s, %(batch_id)s, %(model_id)s, id, %(total)s, 7, 3, 11 FROM l
"""
REQUESTS = """
INSERT INTO request (tenant_id, batch_id, position, line, chunk, start, length, model_id, est_tokens, custom_id)
SELECT %(tenant_id)s, %(batch_id)s, p, p + 1, 0, (p %% 10000) * %(body)s, %(body)s, %(model_id)s, 25, 'r' || p
  FROM generate_series(0, %(total)s - 1) p
"""
SEGMENTS = """
INSERT INTO segment (tenant_id, batch_id, model_id, rank, first, n)
SELECT %(tenant_id)s, %(batch_id)s, %(model_id)s, p, p, least(64, %(total)s - p) FROM generate_series(0, %(total)s - 1, 64) p
"""


@dataclass
class Queue:
    """One tenant's work in one database, on its owner's connection."""

    dsn: str
    connection: Connection[TupleRow] = field(init=False)
    tenant_id: int = field(init=False)
    project_id: int = field(init=False)
    model_id: int = field(init=False)

    def __post_init__(self) -> None:
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        self.tenant_id = self._one("INSERT INTO tenant (public_id, name) VALUES ('ten_b', 'b') RETURNING id", {})
        insert = "INSERT INTO project (tenant_id, public_id, name) VALUES (%(t)s, 'proj_b', 'b') RETURNING id"
        self.project_id = self._one(insert, {"t": self.tenant_id})
        self.model_id = self._one("INSERT INTO model (name) VALUES (%(name)s) RETURNING id", {"name": MODEL})

    def upload(self, chunks: Iterator[bytes]) -> int:
        """Store a file's chunks, one transaction each as the API does; returns its id."""
        insert = """INSERT INTO file (tenant_id, project_id, public_id, filename, purpose, is_complete)
                    VALUES (%(t)s, %(p)s, %(id)s, 'in.jsonl', 'batch', true) RETURNING id"""
        file_id = self._one(insert, {"t": self.tenant_id, "p": self.project_id, "id": ids.new("file-")})
        start = 0
        for n, data in enumerate(chunks):
            row = (self.tenant_id, file_id, n, start, data)
            self.connection.execute("INSERT INTO file_chunk VALUES (%s, %s, %s, %s, %b)", row)
            start += len(data)
        self.connection.execute("UPDATE file SET bytes = %s WHERE id = %s", (start, file_id))
        return file_id

    def batch(self, file_id: int, *, state: int = 0, total: int = 0) -> int:
        values = {"tenant_id": self.tenant_id, "project_id": self.project_id, "public_id": ids.new("batch_")}
        return self._one(BATCH, values | {"file_id": file_id, "state": state, "total": total})

    def fill(self, batches: int, lines: int, *, analyse: bool = True) -> list[int]:
        """Running batches whose requests all share one chunk of small bodies; analysed, as autovacuum would soon."""
        file_id = self.upload(iter([b'{"model":"tiny-chat"}'.ljust(BODY) * 10_000]))
        made = [self.batch(file_id, state=1, total=lines) for _ in range(batches)]
        for batch_id in made:
            values = {"tenant_id": self.tenant_id, "batch_id": batch_id, "model_id": self.model_id, "total": lines}
            for statement in (LANE, REQUESTS, SEGMENTS):
                self.connection.execute(statement, values | {"body": BODY})
        if analyse:
            self.connection.execute("ANALYZE")
        return made

    def _one(self, statement: str, values: dict[str, object]) -> int:
        row = self.connection.execute(statement.encode(), values).fetchone()
        assert row is not None
        return int(row[0])


def chunks_of(lines: int, body_bytes: int) -> Iterator[bytes]:
    """A batch file of so many chat requests of about `body_bytes` each, in chunks of up to 1 MiB that end at line ends."""
    piece = bytearray()
    for n in range(lines):
        body = {"model": MODEL, "messages": [{"role": "user", "content": f"{n} ".ljust(body_bytes - 70, "x")}]}
        line = {"custom_id": f"request-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(piece) + len(data) > 1 << 20:
            yield bytes(piece)
            piece.clear()
        piece += data
    yield bytes(piece)
