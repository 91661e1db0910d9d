"""Lines a second from upload to output file, over HTTP with the scripted engine, beside two floors of the same run.

    python -m benchmarks.over_http [--lines 20000]

Floors: a bare COPY of the same bytes into a table of one column, and the api's cheapest reply (`/healthz`) asked for one after another.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import httpx2
import psycopg

from tests.acceptance.cluster import Cluster


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=20_000)
    lines = parser.parse_args().lines
    cluster = Cluster.make(max_slots="64")
    try:
        scenario = cluster.scenario()
        scenario.instance(max_slots=64)
        scenario.close()
        for name in ("api-1", "duties-1", "worker-1"):
            cluster.start(name)
        with client_of(cluster) as client:
            report(client, cluster, lines)
    finally:
        cluster.remove()


def client_of(cluster: Cluster) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {cluster.key()}"}
    return httpx2.Client(base_url=cluster.urls["api-1"], headers=headers, timeout=600)


def report(client: httpx2.Client, cluster: Cluster, lines: int) -> None:
    data = b"".join(line(n) for n in range(lines))
    begun = time.perf_counter()
    file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", data)}).json()
    uploaded = time.perf_counter()
    values = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = finished(client, client.post("/v1/batches", json=values).json())
    ended = time.perf_counter()
    output = client.get(f"/v1/files/{batch['output_file_id']}/content").content
    read = time.perf_counter()
    assert output.count(b"\n") == lines, batch
    copied = copy_floor(cluster.dsn, data)
    asked = echo_floor(client)
    total = read - begun
    print(f"{lines} lines, {len(data) / 1e6:.1f} MB in, {len(output) / 1e6:.1f} MB out")
    print(f"upload            {uploaded - begun:8.2f} s")
    print(f"plan, run, store  {ended - uploaded:8.2f} s")
    print(f"read output       {read - ended:8.2f} s")
    print(f"end to end        {total:8.2f} s   {lines / total:8.0f} lines/s")
    print(f"floor: bare COPY  {copied:8.2f} s   end to end is {total / copied:.0f} x")
    print(f"floor: bare reply {asked * 1e6:8.0f} us  a line costs {total / lines / asked:.2f} of one")


def line(n: int) -> bytes:
    body = {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": f"{n}: " + "what does this function do? " * 30}],
    }
    return (
        json.dumps({"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}).encode()
        + b"\n"
    )


def finished(client: httpx2.Client, batch: dict[str, Any]) -> dict[str, Any]:
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.1)
        batch = client.get(f"/v1/batches/{batch['id']}").json()
    return batch


def copy_floor(dsn: str, data: bytes) -> float:
    """Seconds to COPY the same lines into a bare table."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE floor (line bytea)")
        begun = time.perf_counter()
        with connection.cursor().copy("COPY floor FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["bytea"])
            for one in data.splitlines():
                copy.write_row((one,))
        connection.commit()
        return time.perf_counter() - begun


def echo_floor(client: httpx2.Client, calls: int = 300) -> float:
    """Seconds of one `/healthz`, at the median."""
    seconds = []
    for _ in range(calls):
        begun = time.perf_counter()
        client.get("/healthz")
        seconds.append(time.perf_counter() - begun)
    return sorted(seconds)[calls // 2]


if __name__ == "__main__":
    main()
