"""A small campaign: clients that retry, faults at random, histories, and a checker that believes nothing it did not see."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2

from tests.acceptance.cluster import Cluster

FINAL = {"completed", "failed", "expired", "cancelled"}


@dataclass
class Submitted:
    """What a client knows of one acknowledged batch."""

    id: str
    bodies: dict[str, bytes]
    is_refused: bool
    secret: str


@dataclass
class History:
    """What was observed. Threads append; the checker reads when they are done."""

    submitted: list[Submitted] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    hooks: dict[str, list[tuple[bytes, dict[str, str]]]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)


class Receiver:
    """Takes webhooks; now and then answers 500, or takes one and loses the answer."""

    def __init__(self, history: History, seed: int) -> None:
        chance = random.Random(seed)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                roll = chance.random()
                if roll < 0.05:
                    self.send_response(500)
                    self.end_headers()
                    return
                history.hooks[json.loads(body)["data"]["id"]].append((body, dict(self.headers.items())))
                if roll < 0.10:
                    self.connection.close()
                    return
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@dataclass
class Client:
    """Speaks to whichever api answers, and retries until it is answered."""

    cluster: Cluster
    key: str
    stop: threading.Event

    def call(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """Try the apis in turn; a reply below 500 is an answer."""
        while True:
            for url in list(self.cluster.urls.values()):
                headers = {"Authorization": f"Bearer {self.key}"} | request.get("headers", {})
                rest = {k: v for k, v in request.items() if k != "headers"}
                try:
                    reply = httpx2.request(method, url + path, headers=headers, timeout=10, **rest)
                except httpx2.HTTPError:
                    continue
                if reply.status_code < 500:
                    return reply
            time.sleep(0.1)


def random_line(chance: random.Random, custom_id: str) -> tuple[bytes, bytes]:
    """(line, body) with odd spacing, escapes, numbers and key order, and sometimes a script for the engine."""
    script = chance.choice(
        ["hi"] * 12 + ["echo:status=400", "echo:status=503 times=1", "echo:cut times=1", "echo:sleep=0.3"]
    )
    odd = chance.choice(['"z":1e2,', '"seed": 12345678901234567890,', '"a":"\\u00e9\\ud83d\\ude00",', '"t":1.0,', ""])
    body = f'{{{odd}"model":"tiny-chat","messages":[{{"content":"{script}","role":"user"}}],"user":"{custom_id}"}}'
    line = f'{{"custom_id":"{custom_id}","method":"POST","url":"/v1/chat/completions","body":{body}}}'
    return line.encode(), body.encode()


def submit_batches(client: Client, history: History, webhook: str, seed: int) -> None:
    """Create batches until told to stop: most plain, some refused, some cancelled soon, some with a window of a second or two."""
    chance = random.Random(seed)
    number = 0
    while not client.stop.is_set():
        number += 1
        name = f"s{seed}b{number}"
        lines = {f"{name}r{n}": random_line(chance, f"{name}r{n}") for n in range(chance.randint(1, 25))}
        is_refused = chance.random() < 0.1
        data = b"\n".join(line for line, _ in lines.values()) + (b"\nnot json" if is_refused else b"")
        file = client.call("POST", "/v1/files", data={"purpose": "batch"}, files={"file": (f"{name}.jsonl", data)})
        values = {
            "input_file_id": file.json()["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": chance.choice(["1h"] * 5 + ["1s", "2s"]),
            "webhook": {"url": webhook},
        }
        replies = [
            client.call("POST", "/v1/batches", json=values, headers={"Idempotency-Key": name})
            for _ in range(chance.randint(1, 2))
        ]
        assert all(r.status_code == 200 for r in replies), [r.text for r in replies]
        assert len({r.json()["id"] for r in replies}) == 1, "one key, two batches"
        batch = replies[0].json()
        secret = batch["webhook"]["signing_secret"] if batch.get("webhook") else ""
        history.submitted.append(
            Submitted(batch["id"], {c: body for c, (_, body) in lines.items()}, is_refused, secret)
        )
        if chance.random() < 0.2:
            time.sleep(chance.random() * 0.5)
            reply = client.call("POST", f"/v1/batches/{batch['id']}/cancel")
            if reply.status_code == 200:
                history.cancelled.add(batch["id"])


def poll_batches(client: Client, history: History, seed: int) -> None:
    """Read batches at random, and keep what they said."""
    chance = random.Random(seed)
    while not client.stop.is_set():
        if history.submitted:
            batch_id = chance.choice(history.submitted).id
            history.statuses[batch_id].append(client.call("GET", f"/v1/batches/{batch_id}").json())
        time.sleep(0.02)


def nemesis(cluster: Cluster, history: History, seed: int, faults: int) -> None:
    """So many faults, one after another: kills, pauses longer than a lease, crashes of the database."""
    chance = random.Random(seed)
    while len(history.faults) < faults:
        time.sleep(0.2 + chance.random() * 0.8)
        fault = chance.choice(["kill"] * 6 + ["pause"] * 2 + ["postgres"])
        if fault == "postgres":
            cluster.crash_postgres()
            history.faults.append("postgres")
            continue
        name = chance.choice([n for n in cluster.processes if fault == "kill" or n.startswith("worker")])
        history.faults.append(f"{fault} {name}")
        if fault == "pause":
            cluster.signal(name, signal.SIGSTOP)
            time.sleep(2.5)
            cluster.signal(name, signal.SIGCONT)
        else:
            cluster.urls.pop(name, None)
            cluster.kill(name)
            cluster.start(name)


def runs_by_request(path: Path) -> dict[str, set[bytes]]:
    """The bodies engines received, by the `user` they carry: the custom_id."""
    found: dict[str, set[bytes]] = defaultdict(set)
    for line in path.read_text().splitlines():
        raw = bytes.fromhex(line.partition(" ")[2])
        found[json.loads(raw)["user"]].add(raw)
    return found
