"""vLLM's CPU build as a server: started on every processor but the first, asked for its counters, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.beside_live.load import MODEL

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".venv-vllm" / "bin" / "python"
START_SECONDS: Final = 600.0
PROMPT: Final = "vllm:prompt_tokens_total"
GENERATED: Final = "vllm:generation_tokens_total"
RUNNING: Final = ("vllm:num_requests_running", "vllm:num_requests_waiting")


@dataclass
class Server:
    """A running vLLM and its log."""

    process: subprocess.Popen[bytes]
    url: str
    client: httpx2.Client

    @classmethod
    def start(cls, model: Path, build: Path, log: TextIO, flags: list[str]) -> Server:
        """Start it and wait until it serves; a first start compiles the model, which is kept under `build`.

        Raises:
            RuntimeError: it ended, or did not serve in time.
        """
        port = _free_port()
        process = subprocess.Popen(
            [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", *_arguments(model, port), *flags],
            env=os.environ | _environment(build),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self = cls(process, f"http://127.0.0.1:{port}", httpx2.Client(timeout=10, trust_env=False))
        self._wait()
        return self

    def _wait(self) -> None:
        ends_at = time.monotonic() + START_SECONDS
        while time.monotonic() < ends_at and self.process.poll() is None:
            try:
                if self.client.get(f"{self.url}/health").status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            time.sleep(0.2)
        self.stop()
        raise RuntimeError("vLLM does not start: see its log")

    def tokens(self) -> int:
        """Prompt and generated tokens so far; a prompt counts when its first token comes."""
        page = self._page()
        return int(page[PROMPT] + page[GENERATED])

    def is_idle(self) -> bool:
        page = self._page()
        return not any(page[name] for name in RUNNING)

    def _page(self) -> dict[str, float]:
        text = self.client.get(f"{self.url}/metrics").text
        return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}

    def stop(self) -> None:
        """End it and the processes it started, which are a session of their own."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.client.close()


def _arguments(model: Path, port: int) -> list[str]:
    return [
        "--model", str(model), "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "bfloat16", "--max-model-len", "2048", "--enable-prompt-tokens-details",
    ]  # fmt: skip


def _environment(build: Path) -> dict[str, str]:
    last = (os.cpu_count() or 2) - 1
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "1" if last <= 1 else f"1-{last}",
        "VLLM_CACHE_ROOT": str(build / "cache"),
        # What this build compiled ahead of time it cannot load again (0.32.0): it would compile for a minute at every start.
        "VLLM_USE_AOT_COMPILE": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
