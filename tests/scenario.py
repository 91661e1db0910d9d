"""Building what a test needs in a real database, in the words of the product: a tenant, models, an instance, a batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow, dict_row

from scheduler.duties import plan
from slackwater import ids
from slackwater.settings import Settings
from slackwater.wire.batch import COUNT_COLUMNS, Counts

MODEL = "tiny-chat"


def settings_for(dsn: str, **changes: Any) -> Settings:
    """Settings of a test process: short leases, so that a lost worker is soon noticed."""
    return Settings(database_url=dsn, master_key="A" * 43 + "=", **changes)


def chat_line(custom_id: str, text: str = "hi", model: str = MODEL) -> bytes:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line).encode()


@dataclass
class Scenario:
    """A tenant with a project, on the owner's connection: what a test sets up is not subject to row-level security."""

    dsn: str
    connection: Connection[TupleRow]
    tenant_id: int = 0
    project_id: int = 0
    models: dict[str, int] = field(default_factory=dict)

    @classmethod
    def on(cls, dsn: str, *, models: Iterable[str] = (MODEL,), name: str = "acme") -> Scenario:
        self = cls(dsn, psycopg.connect(dsn, autocommit=True))
        self.tenant_id = self.one(
            "INSERT INTO tenant (public_id, name) VALUES (%s, %s) RETURNING id", ids.new("ten_"), name
        )
        insert = "INSERT INTO project (tenant_id, public_id, name) VALUES (%s, %s, 'default') RETURNING id"
        self.project_id = self.one(insert, self.tenant_id, ids.new("proj_"))
        for model in models:
            self.models[model] = self.one(
                "INSERT INTO model (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id",
                model,
            )
        return self

    def one(self, statement: str, *values: Any) -> Any:
        """The first column of the first row."""
        row = self.connection.execute(statement.encode(), values).fetchone()
        assert row is not None
        return row[0]

    def instance(self, name: str = "echo", *, options: Mapping[str, Any] | None = None, max_slots: int = 16) -> int:
        """An echo instance that serves every model of the scenario."""
        instance_id: int = self.one(
            "INSERT INTO instance (public_id, name, engine, max_slots, options) VALUES (%s, %s, 'echo', %s, %s) RETURNING id",
            ids.new("inst_"), name, max_slots, json.dumps(options or {}),
        )  # fmt: skip
        for model, model_id in self.models.items():
            self.connection.execute("INSERT INTO instance_model VALUES (%s, %s, %s)", (instance_id, model_id, model))
        return instance_id

    def upload(self, data: bytes, *, chunk: int = 1 << 20) -> int:
        """A complete file of `data`, cut at line ends as the API cuts it."""
        insert = "INSERT INTO file (tenant_id, project_id, public_id, filename, purpose, bytes, is_complete) VALUES (%s, %s, %s, %s, %s, %s, true)"
        values = (self.tenant_id, self.project_id, ids.new("file-"), "in.jsonl", "batch", len(data))
        file_id: int = self.one(insert + " RETURNING id", *values)
        start = 0
        for n, piece in enumerate(pieces(data, chunk)):
            row = (self.tenant_id, file_id, n, start, piece)
            self.connection.execute("INSERT INTO file_chunk VALUES (%s, %s, %s, %s, %s)", row)
            start += len(piece)
        return file_id

    def batch(
        self,
        data: bytes | Iterable[bytes],
        *,
        window: timedelta = timedelta(hours=24),
        plan_now: bool = True,
        chunk: int = 1 << 20,
        **columns: Any,
    ) -> int:
        """A batch over `data` (lines, or the bytes of a file), planned by the real duty unless told not to."""
        content = data if isinstance(data, bytes) else b"\n".join(data) + b"\n"
        file_id = self.upload(content, chunk=chunk)
        values = {
            "tenant_id": self.tenant_id,
            "public_id": ids.new("batch_"),
            "project_id": self.project_id,
            "endpoint": "/v1/chat/completions",
            "input_file_id": self.one("SELECT public_id FROM file WHERE id = %s", file_id),
            "file_id": file_id,
            "output_file_id": ids.new("file-"),
            "error_file_id": ids.new("file-"),
            "completion_window": "24h",
        } | columns
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        insert = f"INSERT INTO batch ({names}, expires_at) VALUES ({marks}, now() + %s) RETURNING id"
        batch_id: int = self.one(insert, *values.values(), window)
        for side, column in enumerate(("output_file_id", "error_file_id")):
            self.connection.execute(
                "INSERT INTO file (tenant_id, project_id, public_id, filename, purpose, batch_id, side) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (self.tenant_id, self.project_id, values[column], column, "batch_output", batch_id, side),
            )
        if plan_now:
            self.plan()
        return batch_id

    def plan(self, **changes: Any) -> None:
        """Run the validate duty until nothing waits."""
        from slackwater.storage.connections import connect

        with connect(self.dsn) as connection:
            while plan.step(connection, settings_for(self.dsn, **changes)):
                pass

    def row(self, batch_id: int) -> dict[str, Any]:
        row = (
            self.connection.cursor(row_factory=dict_row)
            .execute("SELECT * FROM batch WHERE id = %s", (batch_id,))
            .fetchone()
        )
        assert row is not None
        return row

    def counts(self, batch_id: int) -> Counts:
        query = f"SELECT {COUNT_COLUMNS} FROM progress WHERE batch_id = %s".encode()
        return Counts.of(self.connection.cursor(row_factory=dict_row).execute(query, (batch_id,)).fetchone())

    def lines(self, batch_id: int) -> list[dict[str, Any]]:
        """Every stored line of both sides, parsed."""
        rows = self.connection.execute(
            "SELECT body FROM result WHERE batch_id = %s ORDER BY line", (batch_id,)
        ).fetchall()
        return [json.loads(body) for (body,) in rows]

    def close(self) -> None:
        self.connection.close()


def pieces(data: bytes, most: int) -> Iterable[bytes]:
    """Cut at the last line end within `most` bytes, or at `most` where there is none."""
    while data:
        cut = len(data) if len(data) <= most else data.rfind(b"\n", 0, most) + 1 or most
        yield data[:cut]
        data = data[cut:]
