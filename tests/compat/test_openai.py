"""The real `openai` package, in three of its versions, against a running server (contract: WIRE, "the real-client suite")."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from slackwater.wire.errors import RETRY_AFTER_SECONDS
from tests.compat import environments
from tests.compat.conftest import Running
from tests.compat.faults import FaultyApi, is_committing_a_batch
from tests.compat.receiver import Receiver, receiving
from tests.scenario import chat_line
from tests.waiting import until

VERSIONS = ("1.109.1", "2.51.0", "3.57.0")
SUITE = Path(__file__).parent / "clients" / "openai_suite.py"
PARTS = (
    "every_way_to_upload",
    "a_batch_from_upload_to_results",
    "lists_page_by_themselves",
    "cancelling_twice_is_the_same",
    "cancelling_a_completed_one_is_one_call",
    "every_fault_of_a_file_is_told",
    "a_refused_call_says_where",
    "a_refused_query_says_where",
    "a_background_response_is_polled",
    "cancelling_a_response_twice_is_the_same",
    "a_background_stream_resumes",
    "a_background_stream_resumes_where_it_is_awaited",
    "big_files_go_in_parts",
    "an_error_inside_of_a_stream_raises",
    "an_error_inside_of_a_stream_raises_where_it_is_awaited",
    "a_stream_of_a_response_that_breaks_says_so",
    "a_stream_of_a_response_that_breaks_says_so_where_it_is_awaited",
)
LATE_SECONDS = 360

Outcomes = dict[str, str | None]


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def begin(version: str, url: str, running: Running, *parts: str, **told: str) -> subprocess.Popen[str]:
    """Start parts of the suite under one version of the package."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    env = kept | {"URL": url, "API_KEY": running.key, "MODEL": running.model} | told
    command = [str(environments.python(f"openai-{version}")), str(SUITE), *parts]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcomes_of(process: subprocess.Popen[str], version: str) -> Outcomes:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    told = json.loads(out)
    assert told["version"] == version
    outcomes: Outcomes = told["outcomes"]
    return outcomes


@pytest.fixture(scope="session")
def begun(running: Running) -> dict[str, subprocess.Popen[str]]:
    """All versions at once, each with every part that needs no fault, in one process, and as a tenant of its own."""
    own = {version: running.tenant(f"openai-{version}") for version in VERSIONS}
    return {version: begin(version, running.url, running, *PARTS, API_KEY=own[version]) for version in VERSIONS}


@pytest.fixture(scope="session")
def outcomes(version: str, begun: dict[str, subprocess.Popen[str]]) -> Outcomes:
    return outcomes_of(begun[version], version)


@pytest.mark.parametrize("part", PARTS)
def test_the_client_works_unchanged(outcomes: Outcomes, part: str) -> None:
    assert outcomes[part] is None, outcomes[part]


@pytest.fixture(scope="session")
def faulty(running: Running) -> Iterator[FaultyApi]:
    api = FaultyApi(running.cluster)
    yield api
    api.close()


def test_an_outage_is_waited_out(version: str, running: Running, faulty: FaultyApi) -> None:
    """503 with retry-after-ms while the database is away; the client comes back when it was told to."""
    faulty.lose_the_database()
    process = begin(version, faulty.url, running, "an_outage_is_waited_out", SECONDS=str(RETRY_AFTER_SECONDS * 0.9))
    faulty.heal_once_refused()

    assert outcomes_of(process, version) == {"an_outage_is_waited_out": None}


def _killed_between_commit_and_reply(version: str, running: Running, faulty: FaultyApi, part: str) -> Outcomes:
    faulty.back.is_last_word = is_committing_a_batch
    process = begin(version, faulty.url, running, part, MARK=uuid.uuid4().hex)
    faulty.die_between_commit_and_reply()
    return outcomes_of(process, version)


def test_a_killed_server_makes_one_batch(version: str, running: Running, faulty: FaultyApi) -> None:
    """The server dies after the commit and before the reply; the client sends the create again, and says so."""
    part = "a_lost_reply_makes_one_batch"

    assert _killed_between_commit_and_reply(version, running, faulty, part) == {part: None}


def test_a_killed_server_makes_one_response(version: str, running: Running, faulty: FaultyApi) -> None:
    part = "a_lost_reply_makes_one_response"

    assert _killed_between_commit_and_reply(version, running, faulty, part) == {part: None}


def test_a_killed_server_makes_one_batch_of_a_key(running: Running, faulty: FaultyApi) -> None:
    part = "a_lost_reply_with_a_key_makes_one_batch"

    assert _killed_between_commit_and_reply(VERSIONS[-1], running, faulty, part) == {part: None}


@pytest.fixture(scope="session")
def deliveries(running: Running) -> list[dict[str, Any]]:
    """Real deliveries: one that was refused and sent again minutes after its event, and one signed with two secrets."""
    headers = {"authorization": f"Bearer {running.key}"}
    with receiving() as receiver, httpx2.Client(base_url=running.url, headers=headers, timeout=30) as http:
        body = {"name": "compat", "url": receiver.url, "event_types": ["batch.completed"]}
        endpoint = http.post("/v1/webhook_endpoints", json=body).json()
        receiver.statuses.append(500)
        first = _completed(http, running)
        until(lambda: len(receiver.received) == 1)
        _sent_again_late(http, running, receiver, endpoint["id"])
        rotated = http.post(
            f"/v1/webhook_endpoints/{endpoint['id']}/rotate_secret", json={"keep_old_secret_active_for_24_hours": True}
        ).json()
        second = _completed(http, running)
        until(lambda: len(receiver.received) == 3)
        http.delete(f"/v1/webhook_endpoints/{endpoint['id']}")
    return _cases(receiver, endpoint["signing_secret"], rotated["signing_secret"], first, second)


def _completed(http: httpx2.Client, running: Running) -> str:
    """The id of a batch of one line, once it is completed."""
    data = chat_line("a", model=running.model)
    file = http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", data)}).json()
    body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch_id: str = http.post("/v1/batches", json=body).json()["id"]
    until(lambda: http.get(f"/v1/batches/{batch_id}").json()["status"] == "completed")
    return batch_id


def _sent_again_late(http: httpx2.Client, running: Running, receiver: Receiver, endpoint_id: str) -> None:
    """Make the event six minutes old, and have its delivery sent again."""
    url = f"/v1/webhook_endpoints/{endpoint_id}/deliveries"
    until(lambda: http.get(url).json()["data"][0]["attempt_count"] == 1)
    with psycopg.connect(running.cluster.dsn, autocommit=True) as rows:
        rows.execute("UPDATE event SET created_at = created_at - interval '6 minutes'")
        rows.execute("UPDATE delivery SET created_at = created_at - interval '6 minutes'")
    until(lambda: int(time.time()) > receiver.received[0].sent_at)
    http.post(f"/v1/deliveries/{http.get(url).json()['data'][0]['id']}/retry")
    until(lambda: len(receiver.received) == 2)


def _cases(receiver: Receiver, old: str, new: str, first: str, second: str) -> list[dict[str, Any]]:
    refused, late, rotated = receiver.received

    def case(
        name: str, received: Any, secret: str, batch: str, *, good: bool, later: int = 0, body: str = ""
    ) -> dict[str, Any]:
        sent = body or received.body.decode()
        return {
            "name": name,
            "headers": received.headers,
            "body": sent,
            "secret": secret,
            "batch": batch,
            "is_good": good,
            "later": later,
        }

    return [
        case("the first attempt", refused, old, first, good=True),
        case("the late retry, at its own time", late, old, first, good=True),
        case("the first attempt, replayed six minutes later", refused, old, first, good=False, later=LATE_SECONDS),
        case("with the old secret after a rotation", rotated, old, second, good=True),
        case("with the new secret after a rotation", rotated, new, second, good=True),
        case("before the rotation, with the new secret", late, new, first, good=False),
        case("a changed body", late, old, first, good=False, body=late.body.decode().replace("completed", "failed")),
        case("replayed six minutes later", rotated, new, second, good=False, later=LATE_SECONDS),
    ]


def test_deliveries_are_verified(version: str, running: Running, deliveries: list[dict[str, Any]]) -> None:
    process = begin(version, running.url, running, "deliveries_are_verified", DELIVERIES=json.dumps(deliveries))

    assert outcomes_of(process, version) == {"deliveries_are_verified": None}


def test_a_retry_is_the_same_event_with_a_time_of_its_own(deliveries: list[dict[str, Any]]) -> None:
    refused, late = deliveries[0], deliveries[1]
    get: Callable[[dict[str, Any], str], str] = lambda case, name: case["headers"][name]  # noqa: E731

    assert get(refused, "webhook-id") == get(late, "webhook-id")
    assert refused["body"] == late["body"]
    assert int(get(refused, "webhook-timestamp")) < int(get(late, "webhook-timestamp"))
    assert len(get(deliveries[3], "webhook-signature").split()) == 2
