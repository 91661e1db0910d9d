"""What the queue costs: `python -m benchmarks.queue` starts its own PostgreSQL and prints one table.

Everything is measured in one run beside its floors: a bare COPY of the same results, and a bare insert of them 64 at a time. A server that
has run for a while writes its WAL into recycled segments; one that has just begun makes each, zeroes and all, in the backend that commits.
So the benchmark begins by filling enough of them; `--recycled-mb 0` shows the other case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from benchmarks.measured import Spread, cpu_seconds, wal_position
from benchmarks.queued import Queue, chunks_of
from scheduler.duties import plan
from scheduler.queue.claims import Claims
from scheduler.queue.results import Results
from scheduler.queue.work import Claim, Commit, Finished
from slackwater.embedded import Postgres
from slackwater.lifecycle import Outcome
from slackwater.pricing import cost
from slackwater.reader.usage import Usage
from slackwater.settings import Settings
from slackwater.storage import migrate
from slackwater.storage.connections import connect

SEGMENT = 64
FLOOR_TABLE = """
CREATE TABLE {} (tenant_id bigint, batch_id bigint, line int, outcome smallint, http smallint, prompt_tokens int, completion_tokens int,
                 cached_tokens int, attempt smallint, instance_id int,
                 at timestamptz DEFAULT now(), body bytea,
                 PRIMARY KEY (tenant_id, batch_id, line));
ALTER TABLE {} ALTER body SET STORAGE EXTERNAL
"""
FLOOR_INSERT = """
INSERT INTO floor_insert SELECT 1, 1, line, 0, 200, 300, 100, 0, 1, 1, now(), body FROM unnest(%b::int[], %b::bytea[]) x (line, body)
"""


@dataclass
class Report:
    """Figures by name: medians over the rounds where there are several."""

    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> float:
        return median(self.figures[name])

    def print(self) -> None:
        for name, values in self.figures.items():
            rounds = f"   of {', '.join(f'{v:.2f}' for v in values)}" if len(values) > 1 else ""
            print(f"{name:<58}{median(values):>12.2f}{rounds}")


@dataclass(frozen=True, slots=True)
class Sizes:
    lines: int
    body_bytes: int
    result_bytes: int
    rounds: int
    many: int
    recycled_mb: int


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=50_000)
    options.add_argument("--body-bytes", type=int, default=1_200)
    options.add_argument("--result-bytes", type=int, default=800)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--many", type=int, default=1_000_000)
    options.add_argument("--recycled-mb", type=int, default=1_000, help="WAL segments that are there beforehand")
    options.add_argument("--json", type=Path, help="also write the figures here")
    arguments = vars(options.parse_args())
    target = arguments.pop("json")
    sizes = Sizes(**arguments)
    with tempfile.TemporaryDirectory(prefix="slackwater-benchmark-", dir="/tmp") as home:
        Path(home).chmod(0o755)
        wal = {"max_wal_size": "4GB", "min_wal_size": f"{2 * sizes.recycled_mb + 80}MB"}
        with Postgres(Path(home) / "postgres", settings={"shared_buffers": "256MB"} | wal) as server:
            report = run(server, sizes)
    report.print()
    if target is not None:
        target.write_text(json.dumps({"sizes": asdict(sizes), "figures": report.figures}, indent=1))


def run(server: Postgres, sizes: Sizes) -> Report:
    """All measurements, one after the other; nothing else should run on the machine."""
    report = Report()
    _recycle_wal(server, sizes.recycled_mb)
    for number in range(sizes.rounds):
        queue = Queue(_database(server, f"cycle_{number}"))
        asyncio.run(cycle(queue, sizes, report))
        floors(queue, sizes, report)
        queue.connection.close()
    small, large = Queue(_database(server, "small")), Queue(_database(server, "large"))
    asyncio.run(claim_latency(small, small.fill(1, 10_000), large, large.fill(sizes.many // 50_000, 50_000), report))
    _derive(report)
    return report


async def cycle(queue: Queue, sizes: Sizes, report: Report) -> None:
    """A file is uploaded, planned, claimed in segments of 64 and completed; WAL and CPU from end to end."""
    wal = wal_position(queue.connection)
    file_id = queue.upload(chunks_of(sizes.lines, sizes.body_bytes))
    batch_id = queue.batch(file_id)
    uploaded = wal_position(queue.connection)
    began = time.perf_counter()
    with connect(queue.dsn) as connection:
        plan.step(connection, Settings(database_url=queue.dsn, max_requests=sizes.lines))
    report.add("validate and plan: s", time.perf_counter() - began)
    planned = wal_position(queue.connection)
    sizes_of = await _drain(queue, batch_id, sizes, report)
    done = wal_position(queue.connection)
    _wal(report, sizes_of, upload=uploaded - wal, plan=planned - uploaded, run=done - planned)


def _wal(report: Report, bodies: Sequence[int], **parts: int) -> None:
    requests, payload = len(bodies) // 2, sum(bodies)
    for name, size in parts.items():
        report.add(f"WAL of {name}: B/request", size / requests)
    report.add("payload and result: B/request", payload / requests)
    report.add("WAL / (payload + result)", sum(parts.values()) / payload)


async def _drain(queue: Queue, batch_id: int, sizes: Sizes, report: Report) -> list[int]:
    """Claim and complete until nothing is left; returns the length of every payload and result."""
    claims, results = Claims.on(queue.dsn, 1, 60.0), Results.on(queue.dsn, 1, 1)
    pids = [(await link.get()).info.backend_pid for link in (claims.link, results.link)]
    before, began, lengths = [cpu_seconds([pid]) for pid in pids], time.perf_counter(), list[int]()
    while (claim := await claims.claim(queue.model_id, [batch_id], most=SEGMENT)) is not None:
        finished = _answers(claim, sizes.result_bytes)
        await results.commit(Commit(finished, [claim.token]))
        lengths += [len(f.request.body) for f in finished] + [len(f.line) for f in finished]
    took, after = time.perf_counter() - began, [cpu_seconds([pid]) for pid in pids]
    used = [(b - a) / sizes.lines * 1e6 for a, b in zip(before, after, strict=True)]
    report.add("claim: us of server CPU/request", used[0])
    report.add("complete: us of server CPU/request", used[1])
    report.add("claim and complete: us of server CPU/request", sum(used))
    report.add("claim and complete, one worker: requests/s", sizes.lines / took)
    await claims.close()
    await results.close()
    return lengths


def _answers(claim: Claim, size: int) -> list[Finished]:
    usage = Usage(300, 100, 0)
    line = (b'{"custom_id":"x","response":' + b"y" * size)[: size - 1] + b"\n"
    return [Finished(r, Outcome.SUCCEEDED, 200, usage, cost(usage, r.price), line) for r in claim.requests]


def floors(queue: Queue, sizes: Sizes, report: Report) -> None:
    """The same results into a table without partitions and row-level security, as its owner: COPY, and inserts of 64."""
    for name in ("floor_copy", "floor_insert"):
        queue.connection.execute(FLOOR_TABLE.format(name, name).encode())
    body = b"y" * sizes.result_bytes
    with psycopg.connect(queue.dsn, autocommit=True, prepare_threshold=0) as connection:
        _floor(report, "floor, COPY", queue, sizes, connection, _copy)
        _floor(report, "floor, inserts of 64", queue, sizes, connection, _insert)
    assert body


def _floor(
    report: Report, name: str, queue: Queue, sizes: Sizes, connection: psycopg.Connection[Any], action: Any
) -> None:
    pid = [connection.info.backend_pid]
    wal, cpu = wal_position(queue.connection), cpu_seconds(pid)
    action(connection, sizes)
    report.add(f"{name}: us of server CPU/request", (cpu_seconds(pid) - cpu) / sizes.lines * 1e6)
    report.add(f"{name}: WAL B/request", (wal_position(queue.connection) - wal) / sizes.lines)


def _copy(connection: psycopg.Connection[Any], sizes: Sizes) -> None:
    columns = "tenant_id, batch_id, line, outcome, http, prompt_tokens, completion_tokens, cached_tokens, attempt, instance_id, body"
    types = ["int8", "int8", "int4", "int2", "int2", "int4", "int4", "int4", "int2", "int4", "bytea"]
    body = b"y" * sizes.result_bytes
    with connection.cursor().copy(f"COPY floor_copy ({columns}) FROM STDIN (FORMAT binary)".encode()) as copy:
        copy.set_types(types)
        for line in range(sizes.lines):
            copy.write_row((1, 1, line, 0, 200, 300, 100, 0, 1, 1, body))


def _insert(connection: psycopg.Connection[Any], sizes: Sizes) -> None:
    body = b"y" * sizes.result_bytes
    for first in range(0, sizes.lines, SEGMENT):
        lines = list(range(first, min(first + SEGMENT, sizes.lines)))
        connection.execute(FLOOR_INSERT, (lines, [body] * len(lines)), binary=True)


async def claim_latency(small: Queue, few: list[int], large: Queue, many: list[int], report: Report) -> None:
    """Claims of 8 at 10,000 and at a million queued, taken in turn, so that both meet the same machine; then with dead entries kept."""
    sides = [(Claims.on(small.dsn, 1, 600.0), small, few), (Claims.on(large.dsn, 1, 600.0), large, many)]
    for label in ("", "after 1,000 claims, dead rows kept by a reader: "):
        times: list[list[float]] = [[], []]
        lines: list[list[float]] = [[], []]
        for n in range(600):
            for side, (claims, queue, batches) in enumerate(sides):
                times[side].append(
                    await _timed_claim(claims, queue.model_id, random.choice(batches[:1] if n % 2 else batches))
                )
                if n % 20 == 0:
                    lines[side].append(await _timed_line(claims, queue.model_id))
        for name, values in (("10 k", times[0]), ("many", times[1])):
            report.add(f"{label}claim at {name} queued, p50: ms", Spread.of(values).p50)
            report.add(f"{label}claim at {name} queued, p99: ms", Spread.of(values).p99)
        report.add(f"{label}claim p50, many / 10 k", Spread.of(times[1]).p50 / Spread.of(times[0]).p50)
        for name, values in (("10 k", lines[0]), ("many", lines[1])):
            report.add(f"{label}line at {name} queued, p50: ms", Spread.of(values).p50)
        for _, queue, _ in sides:
            queue.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            queue.connection.execute("SELECT count(*) FROM tenant")
    for claims, _, _ in sides:
        await claims.close()


async def _timed_claim(claims: Claims, model_id: int, batch_id: int) -> float:
    began = time.perf_counter()
    assert await claims.claim(model_id, [batch_id], most=8) is not None
    return (time.perf_counter() - began) * 1e3


async def _timed_line(claims: Claims, model_id: int) -> float:
    began = time.perf_counter()
    assert await claims.line([model_id])
    return (time.perf_counter() - began) * 1e3


def _derive(report: Report) -> None:
    whole, insert = "claim and complete: us of server CPU/request", "floor, inserts of 64: us of server CPU/request"
    report.add("claim and complete / inserts of 64, server CPU", report[whole] / report[insert])


def _recycle_wal(server: Postgres, megabytes: int) -> None:
    with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        for _ in range(megabytes):
            connection.execute("SELECT pg_logical_emit_message(false, 'benchmark', repeat('x', 1000000))")
        connection.execute("CHECKPOINT")


def _database(server: Postgres, name: str) -> str:
    with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER slackwater").format(sql.Identifier(name)))
    dsn = make_url(server.dsn).set(database=name).render_as_string(hide_password=False)
    migrate.upgrade(dsn)
    return dsn


if __name__ == "__main__":
    main()
