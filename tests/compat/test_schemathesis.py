"""Generated requests over the OpenAPI document, by two tenants: no 5xx, and nobody reads what is the other's."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from tests.compat import environments
from tests.compat.conftest import Running
from tests.compat.leak import leaking

DOCUMENT = environments.HERE.parents[1] / "docs" / "openapi.json"
SECONDS = 35
LEAK_SECONDS = 20
FEWEST_CASES = 500
# Live requests are answered 503 here: the instance of this server has no address.
CONFIG = """
[auth.wfc]
path = "{people}"
user = "alpha"
peers = ["alpha", "beta"]

[generation]
max-examples = 25
database = "none"

[[operations]]
include-name = "POST /v1/responses"

[operations.checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"""


CHECKS = "not_a_server_error,object_level_authorization,use_after_free"
ALL = ("--checks", CHECKS, "--phases", "examples,coverage,fuzzing,stateful", "--exclude-path-regex", "^/v1/admin/")
BATCHES = (
    "--checks",
    "object_level_authorization",
    "--phases",
    "examples,coverage",
    "--include-path-regex",
    "^/v1/batches",
)


def test_no_generated_request_breaks_the_server_or_crosses_tenants(running: Running, tmp_path: Path) -> None:
    done = _run(running, running.url, tmp_path, *ALL, seconds=SECONDS)

    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-6000:]
    cases = re.search(r"(\d+) generated", told)
    assert cases, told[-3000:]
    assert int(cases[1]) >= FEWEST_CASES


def test_a_leak_between_tenants_would_be_found(running: Running, tmp_path: Path) -> None:
    with leaking(running.url, running.key, running.other_key) as url:
        done = _run(running, url, tmp_path, *BATCHES, seconds=LEAK_SECONDS)

    assert done.returncode == 1, done.stdout
    assert "`beta` received the `Batch` that `alpha` owns" in done.stdout


def _run(running: Running, url: str, folder: Path, *chosen: str, seconds: int) -> subprocess.CompletedProcess[str]:
    people = folder / "people.json"
    people.write_text(json.dumps({"auth": [_person("alpha", running.key), _person("beta", running.other_key)]}))
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.format(people=people))
    program = str(environments.python("schemathesis").parent / "schemathesis")
    command = [
        program, "--config-file", str(config), "run", str(DOCUMENT), "--url", url, "--max-time", str(seconds),
        "--warnings", "off",
        "--no-color", "--seed", "1", *chosen,
    ]  # fmt: skip
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_PROXY": "*"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


def _person(name: str, key: str) -> dict[str, object]:
    return {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {key}"}]}
