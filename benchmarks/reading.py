"""Validating and planning a batch file, against the least that any reader must do, in one run.

    python -m benchmarks.reading --requests 50000 --megabytes 200

`ours` is the validate duty over a file in the database: every line checked, every request placed, requests and segments written in one
transaction. `floor` is a loop of `json.loads` over the lines of the same file on disk plus a bare COPY of as many request rows into a table
without index; `floor_with_lines` copies the lines themselves, as a queue with its payload in its rows does. Each runs in a process of its
own, by turns; the median of the rounds counts. `cpu` is that of the process alone, without the server's: where other work shares the cores it
moves far less than the time. Memory is the peak of the process over what it had before it began. litellm's parser is measured only where
litellm is installed anyway: it is no dependency.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from pydantic import SecretStr

from scheduler.duties import plan
from slackwater import ids
from slackwater.embedded import Postgres
from slackwater.settings import Settings
from slackwater.storage.blobs import CHUNK_BYTES, cut
from slackwater.storage.connections import connect
from slackwater.storage.migrate import upgrade

MIB: Final = 1 << 20
MODEL: Final = "tiny-chat"
ENDPOINT: Final = "/v1/chat/completions"
ROW: Final = (
    "(tenant_id bigint, batch_id bigint, position int, line int, chunk int, start int, length int, model_id int, est_tokens int,"
    " custom_id text)"
)


class Run(NamedTuple):
    """One measurement of one reader: seconds, seconds of its own process's CPU, MiB over idle."""

    seconds: float
    cpu: float
    memory: float


def lines(requests: int, size: int) -> Iterator[bytes]:
    """`requests` lines of `size` bytes in all, about."""
    prose = ("The tide turns; “slack water” comes twice a day — naïve readers call it rest.\n" * 400).encode()
    room = size // requests - 260
    for n in range(requests):
        text = prose[: max(1, room - (n % 7) * 9)].decode(errors="ignore")
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
        body = {"model": MODEL, "messages": messages, "temperature": 0.2, "max_tokens": 64}
        line = {"custom_id": f"request-{n:06d}", "method": "POST", "url": ENDPOINT, "body": body}
        yield json.dumps(line, ensure_ascii=False).encode() + b"\n"


def store(dsn: str, path: Path) -> int:
    """The file as an upload stores it; returns its id."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        tenant = one(owner, "INSERT INTO tenant (public_id, name) VALUES (%s, 'bench') RETURNING id", ids.new("ten_"))
        project = one(
            owner,
            "INSERT INTO project (tenant_id, public_id, name) VALUES (%s, %s, 'd') RETURNING id",
            tenant,
            ids.new("proj_"),
        )
        one(owner, "INSERT INTO model (name) VALUES (%s) RETURNING id", MODEL)
        file = one(
            owner,
            "INSERT INTO file (tenant_id, project_id, public_id, filename, purpose, bytes, is_complete)"
            " VALUES (%s, %s, %s, 'in.jsonl', 'batch', %s, true) RETURNING id",
            tenant, project, ids.new("file-"), path.stat().st_size,
        )  # fmt: skip
        data, n, start = path.read_bytes(), 0, 0
        while start < len(data):
            piece = data[start : start + CHUNK_BYTES]
            piece = piece[: cut(piece)]
            owner.execute("INSERT INTO file_chunk VALUES (%s, %s, %s, %s, %s)", (tenant, file, n, start, piece))
            n, start = n + 1, start + len(piece)
    return file


def one(connection: psycopg.Connection[Any], statement: str, *values: Any) -> int:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def enqueue(dsn: str, file: int) -> None:
    """A batch over the file, waiting to be validated."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO batch (tenant_id, public_id, project_id, endpoint, input_file_id, file_id, output_file_id, error_file_id,"
            " completion_window, expires_at) SELECT tenant_id, %s, project_id, %s, public_id, id, %s, %s, '24h', now() + interval '1 day'"
            " FROM file WHERE id = %s",
            (ids.new("batch_"), ENDPOINT, ids.new("file-"), ids.new("file-"), file),
        )


def ours(dsn: str, path: Path) -> int:
    settings = Settings(database_url=SecretStr(dsn))
    with connect(dsn) as connection:
        assert plan.step(connection, settings) == 1
        return one(connection, "SELECT total FROM batch WHERE state = 1 ORDER BY id DESC LIMIT 1")


def floor(dsn: str, path: Path) -> int:
    rows: list[tuple[Any, ...]] = []
    start = 0
    with path.open("rb") as file:
        for n, line in enumerate(file):
            request = json.loads(line)
            rows.append((1, 1, n, n + 1, 0, start % CHUNK_BYTES, len(line), 1, len(line) // 4, request["custom_id"]))
            start += len(line)
    with psycopg.connect(dsn) as owner, owner.cursor() as cursor:
        cursor.execute(f"CREATE TABLE bare {ROW}".encode())
        with cursor.copy("COPY bare FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    return len(rows)


def floor_with_lines(dsn: str, path: Path) -> int:
    n = 0
    with path.open("rb") as file, psycopg.connect(dsn) as owner, owner.cursor() as cursor:
        cursor.execute("CREATE TABLE bare (line int, custom_id text, data bytea STORAGE EXTERNAL)")
        with cursor.copy("COPY bare FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "bytea"])
            for n, line in enumerate(file, 1):
                copy.write_row((n, json.loads(line)["custom_id"], line))
    return n


def litellm_parser(dsn: str, path: Path) -> int:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # Its import asks the network otherwise.
    from litellm.batches.batch_utils import _get_file_content_as_dictionary  # type: ignore[import-not-found]

    return len(_get_file_content_as_dictionary(path.read_bytes()))


def _run(act: Callable[[str, Path], int], dsn: str, path: Path, answer: Any) -> None:
    """In a process of its own."""
    if act is litellm_parser:
        act(dsn, Path(os.devnull))  # Its import takes seconds, and is no part of reading.
    idle, began, cpu = resident("VmRSS"), time.perf_counter(), time.process_time()
    requests = act(dsn, path)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    answer.send((requests, Run(seconds, cpu, (resident("VmHWM") - idle) / MIB)))


def resident(name: str) -> int:
    """Bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(f"{name}:"))


def measure(act: Callable[[str, Path], int], dsn: str, path: Path, requests: int) -> Run:
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("DROP TABLE IF EXISTS bare")
        owner.execute("CHECKPOINT") if _is_superuser(owner) else None
    near, far = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(act, dsn, path, far))
    process.start()
    done, run = near.recv()
    process.join()
    assert done == requests, (act.__name__, done)
    assert isinstance(run, Run)
    return run


def _is_superuser(owner: psycopg.Connection[Any]) -> bool:
    return bool(one(owner, "SELECT rolsuper::int FROM pg_roles WHERE rolname = current_user"))


def compare(dsn: str, path: Path, requests: int, rounds: int) -> dict[str, Any]:
    """Every measurement `rounds` times, by turns."""
    acts = [ours, floor, floor_with_lines, *([litellm_parser] if find_spec("litellm") else [])]
    seen: dict[str, list[Run]] = {act.__name__: [] for act in acts}
    file = store(dsn, path)
    for _ in range(rounds):
        for act in acts:
            if act is ours:
                enqueue(dsn, file)
            seen[act.__name__].append(measure(act, dsn, path, requests))
    seconds = {name: statistics.median(run.seconds for run in runs) for name, runs in seen.items()}
    cpu = {name: statistics.median(run.cpu for run in runs) for name, runs in seen.items()}
    return {
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "cpu": {name: round(value, 2) for name, value in cpu.items()},
        "all_seconds": {name: [round(run.seconds, 2) for run in runs] for name, runs in seen.items()},
        "memory_over_idle_mib": {name: round(max(run.memory for run in runs), 1) for name, runs in seen.items()},
        "ratio": round(seconds["ours"] / seconds["floor"], 2),
        "ratio_of_cpu": round(cpu["ours"] / cpu["floor"], 2),
        "ratio_with_lines": round(seconds["ours"] / seconds["floor_with_lines"], 2),
        "litellm": "measured" if "litellm_parser" in seen else "not installed",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="slackwater-reading-", dir="/tmp" if os.geteuid() == 0 else None))
    home.chmod(0o755)
    try:
        path = home / "in.jsonl"
        with path.open("wb") as file:
            file.writelines(lines(asked.requests, asked.megabytes * 1_000_000))
        with Postgres(home / "postgres") as server:
            upgrade(server.dsn)
            figures = compare(server.dsn, path, asked.requests, asked.rounds)
        figures |= {"requests": asked.requests, "bytes": path.stat().st_size, "cores": os.cpu_count()}
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
