"""What libraries log is one line of JSON each, and holds nothing that a client sent."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
import asyncio, logging
from python_multipart import MultipartParser
from slackwater.telemetry import configure_logs

configure_logs()
try:
    MultipartParser(b"b").write(b"--canary")
except Exception:
    pass

async def main():
    asyncio.get_running_loop().call_soon(int, "canary")
    await asyncio.sleep(0)

asyncio.run(main())
try:
    raise ValueError("canary")
except ValueError as error:
    logging.getLogger("celery.app.trace").error("Task %s raised: %r", "duty", error, exc_info=True)
logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.\\ncanary")
"""


def test_libraries_quote_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)

    facts = [json.loads(line) for line in done.stderr.splitlines()]
    assert "canary" not in done.stderr
    assert [(f["logger"], f["said"], f.get("exception")) for f in facts] == [
        ("python_multipart.multipart", None, None),
        ("asyncio", None, "ValueError"),
        ("celery.app.trace", "Task %s raised: %r", "ValueError"),
        ("uvicorn.error", "Invalid HTTP request received.", None),
    ]
