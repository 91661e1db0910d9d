"""What the README says is run: its snippets against a running `slackwater up`, its commands against the Makefile, and the demo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from examples.code_scan import source_files
from tests.acceptance.running import up

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_client_snippet_runs(folder: Path) -> None:
    with up(folder / "data") as running:
        env = os.environ | {"SLACKWATER_URL": running.url, "SLACKWATER_API_KEY": running.key}
        done = subprocess.run([sys.executable, "-c", SNIPPETS[0]], env=env, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["question-0", "question-1", "question-2"]


def test_the_receiver_has_ten_lines() -> None:
    assert len([line for line in SNIPPETS[1].splitlines() if line.strip()]) == 10


def test_the_receiver_snippet_verifies_and_refuses() -> None:
    code = SNIPPETS[1].replace("9000", "0").replace(").serve_forever()", ")")
    code = code.replace("HTTPServer(", "server = HTTPServer(")
    seen: list[str] = []
    space: dict[str, object] = {"SECRET": SECRET, "print": lambda *words: seen.append(" ".join(words))}
    exec(code, space)
    server = space["server"]
    handler = server.RequestHandlerClass  # type: ignore[attr-defined]
    handler.log_message = lambda *_: None
    server.handle_error = lambda *_: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)  # type: ignore[attr-defined]
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"  # type: ignore[attr-defined]
    body = json.dumps({"type": "batch.completed", "data": {"id": "batch_1"}})

    assert _post(url, body, SECRET) == 204
    assert _post(url, body, "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD") is None
    assert seen == ["batch.completed batch_1"]
    server.shutdown()  # type: ignore[attr-defined]
    server.server_close()  # type: ignore[attr-defined]
    thread.join(60)


def _post(url: str, body: str, secret: str) -> int | None:
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign("evt_1", now, body),
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=20) as reply:
            return int(reply.status)
    except OSError:
        return None


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`?make (\w+)", README))))
def test_the_makefile_has_the_commands(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_the_demo_scans_sources_and_no_environment(tmp_path: Path) -> None:
    for name in (".venv-vllm/lib/a.py", "b/.hidden.py", "b/c.py", "build/d.py", "e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n" * 50)
    (tmp_path / "empty.py").touch()

    assert list(source_files(tmp_path, 12)) == [tmp_path / "b" / "c.py", tmp_path / "e.py"]
    assert list(source_files(tmp_path, 1)) == [tmp_path / "b" / "c.py"]


@pytest.mark.engine
def test_the_demo_runs(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def add(a: int, b: int) -> int:\n    return a - b\n" * 5)
    command = [sys.executable, "-m", "examples.code_scan", "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "signature",
        "verified",
        "one.py",
        "cached share: unknown",
        "everything that was started is stopped",
        "135 M",
    ):
        assert said in done.stdout
