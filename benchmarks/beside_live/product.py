"""The product beside it, as separate processes on a database of its own: api, duties, and the worker of a phase."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.beside_live.load import MODEL
from slackwater.cli.administer import as_admin
from slackwater.tenancy import instances, keys, tenants
from tests.acceptance.cluster import Cluster

TENANT: Final = "bench"
INSTANCE: Final = "vllm"
WORKER: Final = "worker"
FINAL: Final = ("completed", "failed", "expired", "cancelled")


@dataclass
class Product:
    """Clients see its API at `url` with `key`."""

    cluster: Cluster
    key: str
    client: httpx2.Client
    log: Path

    @classmethod
    def start(cls, upstream: str, slots: int, options: dict[str, float], log: Path) -> Product:
        cluster = Cluster.make(lease_seconds="15", grace_seconds="1", max_slots=str(slots))
        try:
            as_admin(cluster.dsn, lambda c: tenants.create(c, TENANT))
            key = as_admin(cluster.dsn, lambda c: keys.create(c, TENANT, scopes=keys.SCOPES)).text
            new = instances.NewInstance(INSTANCE, {MODEL: MODEL}, url=upstream, max_slots=slots, options=options)
            as_admin(cluster.dsn, lambda c: instances.create(c, new))
            for name in ("api-1", "duties-1"):
                cluster.start(name)
            headers = {"Authorization": f"Bearer {key}"}
            client = httpx2.Client(base_url=cluster.urls["api-1"], headers=headers, timeout=120, trust_env=False)
            return cls(cluster, key, client, log)
        except BaseException:
            cluster.remove()
            raise

    @property
    def url(self) -> str:
        return self.cluster.urls["api-1"]

    def work(self, rule: str, opens_at: float = 0.0) -> None:
        """Start the worker under a rule."""
        command = [sys.executable, "-m", "benchmarks.beside_live.worker", "--instance", INSTANCE, "--rule", rule]
        command += ["--log", str(self.log), "--opens-at", str(opens_at)]
        with (self.cluster.home / "worker.log").open("a") as log:
            process = subprocess.Popen(
                command, env=self.cluster.environment, stdout=log, stderr=log, text=True, start_new_session=True
            )
        self.cluster.processes[WORKER] = process

    def rest(self) -> None:
        """Stop the worker; what it ran is handed back."""
        process = self.cluster.processes.pop(WORKER, None)
        if process is not None:
            process.terminate()
            process.wait(timeout=30)

    def submit(self, lines: bytes) -> str:
        """Upload and start a batch; returns its id once it is planned."""
        sent = self.client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", lines)})
        values = {"input_file_id": sent.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = self.client.post("/v1/batches", json=values).json()
        while batch["status"] == "validating":
            time.sleep(0.1)
            batch = self.look(batch["id"])
        if batch["status"] != "in_progress":
            raise RuntimeError(f"the batch is {batch['status']}: {batch.get('errors')}")
        return str(batch["id"])

    def look(self, batch_id: str) -> dict[str, Any]:
        batch: dict[str, Any] = self.client.get(f"/v1/batches/{batch_id}").json()
        return batch

    def cancel(self, batch_id: str) -> dict[str, Any]:
        """Cancel a batch and wait until it is over; returns it as it ended."""
        self.client.post(f"/v1/batches/{batch_id}/cancel")
        while (batch := self.look(batch_id))["status"] not in FINAL:
            time.sleep(0.1)
        return batch

    def remove(self) -> None:
        self.client.close()
        self.cluster.remove()

    def logs(self) -> str:
        return self.cluster.logs()


def keep_to_the_first_processor() -> None:
    """This process and what it starts stay off the processors that the engine computes on."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {0})
