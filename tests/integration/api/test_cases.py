"""The input cases, from the upload to `errors.data`, and through a run where the good lines may run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slackwater.settings import Settings
from slackwater.tenancy import models
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker
from tests.integration.api.work import add_echo, at_work, ended, plan_all
from tests.unit.reader.test_cases import CASES, TABLE

OTHER_MODELS = ("other-chat", "tiny-embed")


def add_models(api: Api) -> None:
    async def add(connection: Any) -> None:
        for name in OTHER_MODELS:
            await models.ensure(connection, name)

    api.admin(add)


def create(api: Api, data: bytes, endpoint: str = "/v1/chat/completions", **changes: Any) -> str:
    file = api.client().files.create(file=data, purpose="batch")
    body = {"input_file_id": file.id, "endpoint": endpoint, "completion_window": "24h"} | changes
    reply = api.http().post("/v1/batches", json=body)
    assert reply.status_code == 200
    return str(reply.json()["id"])


def test_every_case_is_told_line_by_line(api: Api, api_settings: Settings) -> None:
    add_models(api)
    made = [create(api, (CASES / case.file).read_bytes(), case.endpoint) for case in TABLE]

    plan_all(api_settings)

    http = api.http()
    for case, batch_id in zip(TABLE, made, strict=True):
        seen = http.get(f"/v1/batches/{batch_id}").json()
        if not case.errors:
            assert (seen["status"], seen["errors"]) == ("in_progress", None), case.file
            assert seen["request_counts"]["total"] == len(case.runs), case.file
            continue
        assert seen["status"] == "failed", case.file
        assert seen["failed_at"] >= seen["created_at"]
        assert seen["errors"]["object"] == "list"
        told = [(e["line"], e["code"], e["param"]) for e in seen["errors"]["data"]]
        assert told == [error[:3] for error in case.errors], case.file
        for error, expected in zip(seen["errors"]["data"], case.errors, strict=True):
            assert expected[3] in error["message"], case.file
        assert (seen["output_file_id"], seen["error_file_id"]) == (None, None)


def test_a_hundred_errors_are_kept_and_the_rest_counted(api: Api, api_settings: Settings) -> None:
    batch_id = create(api, b"nonsense\n" * 250)

    plan_all(api_settings)

    data = api.http().get(f"/v1/batches/{batch_id}").json()["errors"]["data"]
    assert [error["line"] for error in data] == [*range(1, 101), None]
    assert (data[-1]["code"], data[-1]["message"]) == ("more_errors", "… and 150 more.")


def test_an_unknown_input_makes_a_batch_that_fails(api: Api, api_settings: Settings) -> None:
    body = {"input_file_id": "file-" + "0" * 32, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = api.http().post("/v1/batches", json=body).json()
    assert made["status"] == "validating"

    plan_all(api_settings)

    seen = api.client().batches.retrieve(made["id"])
    assert seen.status == "failed"
    assert seen.errors is not None
    assert seen.errors.data is not None
    assert [(e.code, e.line, e.param) for e in seen.errors.data] == [("invalid_request", None, "file_id")]


RUNNABLE = [case for case in TABLE if case.runs and case.endpoint == "/v1/chat/completions"]


def test_the_good_lines_run_and_the_bad_ones_stand_in_the_error_file(
    api: Api, api_settings: Settings, worker: Worker
) -> None:
    """`on_invalid: skip` over every case, mixed models included: each line once, its counts right, its bytes as sent."""
    add_models(api)
    add_echo(api.dsn)
    made = {c.file: create(api, (CASES / c.file).read_bytes(), on_invalid="skip") for c in RUNNABLE}
    http = api.http()
    with at_work(api_settings):
        for case in RUNNABLE:
            seen = ended(http, made[case.file])
            counts = seen["request_counts"]
            assert seen["status"] == "completed", case.file
            assert (counts["total"], counts["completed"], counts["failed"]) == (
                len(case.runs) + len(case.errors),
                len(case.runs),
                len(case.errors),
            ), case.file
            lines = [json.loads(line) for line in http.get(f"/v1/batches/{seen['id']}/results").text.splitlines()]
            numbers = [int(line["id"].rpartition("_")[2], 16) for line in lines]
            assert numbers == sorted([*case.runs, *[line for line, *_ in case.errors if line]]), case.file
            refused = [line["error"]["code"] for line in lines if line["error"]]
            assert refused == [error[1] for error in case.errors], case.file


def test_a_batch_has_a_model_when_it_has_exactly_one(api: Api, api_settings: Settings) -> None:
    add_models(api)
    one = create(api, (CASES / "IN-03-crlf-blank-lines-no-final-newline.jsonl").read_bytes())
    two = create(api, (CASES / "IN-10-two-models-one-file.jsonl").read_bytes())

    plan_all(api_settings)

    assert [api.client().batches.retrieve(batch).model for batch in (one, two)] == ["tiny-chat", None]


@pytest.mark.parametrize("line", ["", "\n\n"])
def test_an_empty_file_fails_whatever_is_to_be_skipped(api: Api, api_settings: Settings, line: str) -> None:
    batch_id = create(api, (line or " ").encode(), on_invalid="skip")

    plan_all(api_settings)

    assert api.http().get(f"/v1/batches/{batch_id}").json()["errors"]["data"][0]["code"] == "empty_file"
