"""What a check comes to, and how a run is told."""

from __future__ import annotations

import json

import httpx2
import pytest

from slackwater.conformance import report, runner
from slackwater.conformance.expect import Mismatch, NotOffered, offered, ok, taken
from slackwater.conformance.registry import Check
from slackwater.conformance.runner import Verdict
from slackwater.conformance.session import Session, Shared

REQUEST = httpx2.Request("POST", "http://host/v1/batches")


def reply(status: int, value: object) -> httpx2.Response:
    return httpx2.Response(status, json=value, request=REQUEST)


def judged(name: str, error: Exception | None) -> runner.Outcome:
    def test(_: Session) -> None:
        if error is not None:
            raise error

    return runner.judge(Check(name, "WIRE 8", "200", test), Shared(httpx2.Client(), "m"))


@pytest.mark.parametrize(
    ("name", "error", "verdict"),
    [
        ("ext.a", None, Verdict.PASSED),
        ("ext.a", NotOffered("404"), Verdict.NOT_OFFERED),
        ("ext.a", Mismatch("no"), Verdict.FAILED),
        ("ext.a", KeyError("id"), Verdict.FAILED),
        ("batches.a", NotOffered("404"), Verdict.FAILED),
    ],
)
def test_only_an_extension_can_be_not_offered(name: str, error: Exception | None, verdict: Verdict) -> None:
    assert judged(name, error).verdict is verdict


def test_a_run_is_told_in_three_counts() -> None:
    outcomes = [judged("ext.a", None), judged("ext.b", NotOffered("POST /x: 404")), judged("c", Mismatch("no"))]

    assert report.summary(outcomes) == "1 of 3 checks passed, 1 failed, 1 not offered"
    assert report.as_text(outcomes[1]) == "none  ext.b  (not offered: POST /x: 404)"
    told = json.loads(report.as_json("http://host", outcomes))
    assert (told["total"], told["passed"], told["failed"], told["not_offered"]) == (3, 1, 1, 1)
    assert [one["passed"] for one in told["checks"]] == [True, False, False]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_route_that_is_not_there_is_not_offered(status: int) -> None:
    with pytest.raises(NotOffered):
        offered(reply(status, {}))


@pytest.mark.parametrize("status", [400, 401, 403, 409, 500])
def test_a_route_that_refuses_is_there(status: int) -> None:
    with pytest.raises(Mismatch):
        offered(reply(status, {}))


@pytest.mark.parametrize(
    ("status", "value", "error"),
    [
        (400, {"error": {"param": "priority"}}, NotOffered),
        (422, {"detail": [{"loc": ["body", "priority"]}]}, NotOffered),
        (200, {"id": "batch_1"}, NotOffered),
        (400, {"error": {"param": "endpoint"}}, Mismatch),
        (500, {"error": {"param": "priority"}}, Mismatch),
    ],
)
def test_a_member_is_offered_where_it_is_taken_and_shown(status: int, value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        taken(reply(status, value), "priority")


def test_a_member_that_is_taken_gives_the_object() -> None:
    made = reply(200, {"id": "batch_1", "priority": 3})

    assert taken(made, "priority") == ok(made)
    assert taken(made, "requests", shown=False) == ok(made)
