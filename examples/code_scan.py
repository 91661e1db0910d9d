"""Scan source files with a small model: one request a file, one batch, on a Slackwater that this script starts and stops.

python -m examples.code_scan [--dir PATH] [--files 12]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.webhook_receiver import Receiver

ROOT = Path(__file__).resolve().parent.parent
MODEL = "smollm2-135m-instruct"
SUFFIXES = {".py", ".js", ".ts", ".go", ".rs", ".c", ".h", ".java", ".rb", ".sh", ".sql"}
SKIPPED = {"node_modules", "build", "dist", "__pycache__", "site-packages"}
CHARACTERS = 3_000
SYSTEM = (
    "You review source code. Read the file and answer with one JSON object: a one-sentence summary of what it does, "
    "the risk you see in it, and at most two findings."
)
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary", "risk", "findings"],
    "properties": {
        "summary": {"type": "string", "maxLength": 100},
        "risk": {"enum": ["none", "low", "medium", "high"]},
        "findings": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 80}},
    },
}
console = Console()


def main() -> None:
    arguments = _arguments()
    paths = list(source_files(arguments.dir, arguments.files))
    if not paths:
        sys.exit(f"no source files under {arguments.dir}")
    out = ROOT / "build" / "demo"
    out.mkdir(parents=True, exist_ok=True)
    (out / "input.jsonl").write_text("".join(request_line(path, arguments.dir) + "\n" for path in paths))
    with slackwater() as api, Receiver() as receiver:
        batch = submit(api, out / "input.jsonl", receiver.url)
        receiver.secret = batch["webhook"]["signing_secret"]
        batch = watch(api, batch["id"])
        event = receiver.wait(seconds=60)
        console.print(f"webhook: [green]{event['type']}[/] for {event['data']['id']}, signature verified")
        lines = save(api, batch, out)
    show(lines, batch, out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Scan source files in one batch.")
    parser.add_argument("--dir", type=Path, default=ROOT, help="the directory to scan (default: this project)")
    parser.add_argument("--files", type=int, default=12, help="how many files at most")
    return parser.parse_args()


def source_files(directory: Path, most: int) -> Iterator[Path]:
    """The first `most` source files that are not empty, by path; none of hidden directories, where environments live."""
    kept = (path for path in sorted(directory.rglob("*")) if not any(map(_skipped, path.relative_to(directory).parts)))
    found = (path for path in kept if path.suffix in SUFFIXES and path.is_file() and path.stat().st_size > 200)
    return islice(found, most)


def _skipped(part: str) -> bool:
    return part in SKIPPED or part.startswith(".")


def request_line(path: Path, directory: Path) -> str:
    """One line of the batch: the shared system prompt, then the beginning of the file."""
    name = str(path.relative_to(directory))
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"File {name}:\n\n{path.read_text(errors='replace')[:CHARACTERS]}"},
        ],
        "max_tokens": 160,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "finding", "strict": True, "schema": SCHEMA},
        },
    }
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})


@contextmanager
def slackwater() -> Iterator[httpx2.Client]:
    """`slackwater up` on a database of its own, and a client for it; both are gone afterwards."""
    data = Path(tempfile.mkdtemp(prefix="slackwater-demo-"))
    data.chmod(0o755)
    environment = os.environ | {"SLACKWATER_WEBHOOK_ALLOW": '["127.0.0.1/32"]', "SLACKWATER_WEBHOOK_ALLOW_HTTP": "true"}
    command = [sys.executable, "-m", "slackwater.cli.main", "up", "--data", str(data), "--port", "0", "--print-env"]
    with (ROOT / "build" / "demo" / "slackwater.log").open("w") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
        try:
            with console.status(
                "starting PostgreSQL, the API, the duties, the webhook sender and a worker with the model"
            ):
                url, key = _printed(server, "SLACKWATER_URL"), _printed(server, "SLACKWATER_API_KEY")
            console.print(f"Slackwater is up at {url}")
            with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
                yield client
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=30)
            shutil.rmtree(data, ignore_errors=True)
    console.print("everything that was started is stopped")


def _printed(server: subprocess.Popen[str], name: str) -> str:
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line.startswith(f"{name}="):
        sys.exit("Slackwater did not start: see build/demo/slackwater.log")
    return line.strip().partition("=")[2]


def submit(api: httpx2.Client, path: Path, webhook: str) -> dict[str, Any]:
    """Upload the file and create the batch; the reply carries the webhook's secret, once."""
    with path.open("rb") as content:
        file = _ok(api.post("/v1/files", data={"purpose": "batch"}, files={"file": (path.name, content)}))
    values = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = _ok(api.post("/v1/batches", json=values | {"webhook": {"url": webhook}}))
    console.print(f"batch {batch['id']}")
    return batch


def watch(api: httpx2.Client, batch_id: str) -> dict[str, Any]:
    """Poll until the batch has ended, showing how far it is, and the reason whenever it waits."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[why]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("scanning", total=None, why="")
        while True:
            batch = _ok(api.get(f"/v1/batches/{batch_id}"))
            counts, waiting = batch["request_counts"], batch["waiting_reason"]
            why = f"waiting: {waiting['message']}" if isinstance(waiting, dict) else batch["status"]
            progress.update(
                task, completed=counts["completed"] + counts["failed"], total=counts["total"] or None, why=why
            )
            if batch["status"] in ("completed", "failed", "expired", "cancelled"):
                return batch
            time.sleep(0.5)


def save(api: httpx2.Client, batch: dict[str, Any], out: Path) -> list[dict[str, Any]]:
    """Keep the output and error files, and return their lines."""
    lines: list[dict[str, Any]] = []
    for name in ("output_file_id", "error_file_id"):
        if batch[name]:
            content = api.get(f"/v1/files/{batch[name]}/content").content
            (out / f"{name.partition('_')[0]}.jsonl").write_bytes(content)
            lines += [json.loads(line) for line in content.splitlines()]
    return lines


def show(lines: list[dict[str, Any]], batch: dict[str, Any], out: Path) -> None:
    """A table of the findings, the tokens, and where everything is."""
    table = Table("file", "risk", "what the model says", title="Code scan")
    for line in lines:
        table.add_row(escape(line["custom_id"]), *_finding(line))
    console.print(table)
    usage = batch["usage"]
    cached = usage["input_tokens_details"]["cached_tokens"]
    share = "unknown" if cached is None else f"{cached / max(1, usage['input_tokens']):.0%}"
    console.print(f"tokens: {usage['input_tokens']:,} in (cached share: {share}), {usage['output_tokens']:,} out")
    console.print(f"files: {out}/input.jsonl, output.jsonl; the server's log: {out}/slackwater.log")
    console.print("[dim]The model has 135 M parameters: its findings show the way, not your code's faults.[/]")


def _finding(line: dict[str, Any]) -> tuple[str, str]:
    response = line["response"]
    if response is None or response["status_code"] != 200:
        error = line["error"] or response["body"]["error"]
        return "-", f"error: {escape(error['message'])}"
    choice = response["body"]["choices"][0]
    try:
        answer = json.loads(choice["message"]["content"])
    except ValueError:
        return "-", f"cut off ({choice['finish_reason']})"
    said = "; ".join([answer["summary"], *answer["findings"]])
    return answer["risk"], escape(said)


def _ok(reply: httpx2.Response) -> dict[str, Any]:
    if reply.status_code != 200:
        sys.exit(f"{reply.request.method} {reply.request.url}: {reply.status_code} {reply.text}")
    value: dict[str, Any] = reply.json()
    return value


if __name__ == "__main__":
    main()
