"""Our own server passes our own conformance checks; and the command says so when a server does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from slackwater.conformance import checks, registry
from tests.compat.conftest import Running
from tests.compat.plain import plain
from tests.processes import environment, run

assert checks


def conformance(url: str, key: str, *arguments: str) -> tuple[int, str]:
    command = ("conformance", "--base-url", url, "--model", "tiny-chat", *arguments)
    done = run(*command, env=environment(SLACKWATER_API_KEY=key), seconds=300)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_this_server_passes_every_check(running: Running) -> None:
    code, out = conformance(f"{running.url}/v1", running.key, "--ext", "--json")

    report = json.loads(out)
    failed = [f"{one['name']}: {one['answered']}" for one in report["checks"] if not one["passed"]]
    assert failed == [], running.cluster.logs()
    assert (code, report["failed"]) == (0, 0)
    assert report["passed"] == report["total"] == len(registry.CHECKS)


# What OpenAI has as well, or what shows in how it refuses.
OPENAIS_TOO = {"ext.other_endpoints"}
STRICT_TOO = OPENAIS_TOO | {"ext.unknown_member_is_refused"}


def test_a_server_with_nothing_of_ours_fails_nothing(running: Running) -> None:
    with plain(running.url, strict=True) as url:
        code, out = conformance(url, running.key, "--ext", "--json")

    report = json.loads(out)
    by_verdict = {one["name"]: one["verdict"] for one in report["checks"]}
    extensions = {name for name in by_verdict if name.startswith(registry.OPTIONAL)}
    assert [f"{one['name']}: {one['answered']}" for one in report["checks"] if one["verdict"] == "failed"] == []
    assert {name for name in extensions if by_verdict[name] == "not_offered"} == extensions - STRICT_TOO
    assert (code, report["not_offered"]) == (0, len(extensions - STRICT_TOO))
    assert {by_verdict[name] for name in by_verdict.keys() - extensions} == {"passed"}


def test_a_server_that_drops_what_it_does_not_know_offers_nothing(running: Running) -> None:
    with plain(running.url, strict=False) as url:
        code, out = conformance(url, running.key, "--ext", "--only", registry.EXTENSIONS)

    told = [line for line in out.splitlines() if not line.startswith("none  ")]
    assert told[:-1] == [f"pass  {name}" for name in sorted(OPENAIS_TOO)]
    assert told[-1].endswith(f"0 failed, {len(out.splitlines()) - 2} not offered")
    assert code == 0


class _Nothing(BaseHTTPRequestHandler):
    """A server that answers a page to everything, as a proxy does."""

    def do_GET(self) -> None:
        body = b"<html>hello</html>"
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def page_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Nothing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_is_none_fails_every_check(page_server: str) -> None:
    code, out = conformance(page_server, "sk-any", "--ext", "--json")

    report = json.loads(out)
    passed = [one["name"] for one in report["checks"] if one["passed"]]
    assert passed == []
    assert code == 1


def test_a_person_reads_what_was_expected_and_what_came(page_server: str) -> None:
    code, out = conformance(page_server, "", "--only", "models.list")

    assert code == 1
    assert "FAIL  models.list_holds_the_model  (WIRE 8)" in out
    assert "OpenAI answers: 200 {object: list" in out
    assert "<html>hello</html>" in out
    assert out.endswith("0 of 1 checks passed, 1 failed\n")


def test_names_are_dotted_words() -> None:
    for name, check in registry.CHECKS.items():
        assert all(word.replace("_", "").isalnum() for word in name.split(".")), name
        assert check.expected
        assert check.section.startswith("WIRE ")
