"""Generated requests over the OpenAPI document, by two tenants: no 5xx, and nobody reads what is the other's."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from tests.compat import environments
from tests.compat.conftest import Running

DOCUMENT = environments.HERE.parents[1] / "docs" / "openapi.json"
SECONDS = 45
FEWEST_CASES = 500
CONFIG = """
[auth.wfc]
path = "{people}"
user = "alpha"
peers = ["alpha", "beta"]

[generation]
max-examples = 25
database = "none"
"""


def test_no_generated_request_breaks_the_server_or_crosses_tenants(running: Running, tmp_path: Path) -> None:
    done = _run(running, tmp_path)

    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-6000:]
    cases = re.search(r"(\d[\d,]*) generated", told)
    assert cases, told[-3000:]
    assert int(cases[1].replace(",", "")) >= FEWEST_CASES


def _run(running: Running, folder: Path) -> subprocess.CompletedProcess[str]:
    people = folder / "people.json"
    people.write_text(json.dumps({"auth": [_person("alpha", running.key), _person("beta", running.other_key)]}))
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.format(people=people))
    command = [
        str(environments.python("schemathesis").parent / "schemathesis"), "--config-file", str(config), "run", str(DOCUMENT),
        "--url", running.url, "--checks", "not_a_server_error,object_level_authorization,use_after_free",
        "--phases", "examples,coverage,fuzzing,stateful", "--max-time", str(SECONDS), "--exclude-path-regex", "^/v1/admin/",
        "--warnings", "off", "--no-color", "--seed", "1",
    ]  # fmt: skip
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_PROXY": "*"}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS * 6, check=False
    )


def _person(name: str, key: str) -> dict[str, object]:
    return {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {key}"}]}
