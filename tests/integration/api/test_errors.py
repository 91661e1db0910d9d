"""Whatever is sent, the reply is an error envelope with a request id, and never a 500; input is not repeated."""

from __future__ import annotations

import gzip
import json

import openai
import psycopg
import pytest
from pydantic import SecretStr

from slackwater.settings import Settings
from tests.integration.api.conftest import Api, running
from tests.integration.api.test_batches import BODY

CANARY = "SECRET-CANARY"
JSON = {"content-type": "application/json"}


@pytest.fixture
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"max_body_bytes": 300_000})


def body(text: str) -> bytes:
    """The text of a create whose `input_file_id` is `text`, written as it stands."""
    return json.dumps(BODY).replace(json.dumps(BODY["input_file_id"]), text).encode()


HOSTILE: dict[str, tuple[bytes, int, str | None]] = {
    "nothing": (b"", 400, "invalid_json"),
    "not json": (CANARY.encode(), 400, "invalid_json"),
    "two values": (b"{} {}", 400, "invalid_json"),
    "trailing comma": (b'{"a":1,}', 400, "invalid_json"),
    "NaN": (body("NaN"), 400, "invalid_json"),
    "infinity": (body("-Infinity"), 400, "invalid_json"),
    "1e400": (body("1e400"), 400, "number_out_of_range"),
    "4,301 digits": (body("1" * 4301), 400, "number_out_of_range"),
    "200,000 digits": (body("1" * 200_000), 400, "number_out_of_range"),
    "2^64": (body(str(2**64)), 400, "invalid_type"),
    "lone surrogate": (body('"\\ud83d"'), 400, "invalid_unicode"),
    "lone surrogate in a list": (body('["\\ud83d"]'), 400, "invalid_unicode"),
    "lone surrogate as key": (body('{"\\udc00":1}'), 400, "invalid_unicode"),
    "NUL escape": (body('"file-\\u0000"'), 400, "invalid_value"),
    "raw NUL": (body('"file-\x00"'), 400, "invalid_json"),
    "bad UTF-8": (b'{"input_file_id":"\xff"}', 400, "invalid_unicode"),
    "overlong UTF-8": (b'{"input_file_id":"\xc0\xaf"}', 400, "invalid_unicode"),
    "UTF-8 surrogate": (b'{"input_file_id":"\xed\xa0\x80"}', 400, "invalid_unicode"),
    "UTF-16": (json.dumps(BODY).encode("utf-16"), 400, "invalid_unicode"),
    "UTF-32": (json.dumps(BODY).encode("utf-32"), 400, "invalid_unicode"),
    "BOM": (b"\xef\xbb\xbf" + json.dumps(BODY).encode(), 400, "invalid_unicode"),
    "repeated key": (b'{"endpoint":"a","endpoint":"b"}', 400, "duplicate_key"),
    "depth 500": (body("[" * 500 + "]" * 500), 400, "too_deep"),
    "depth 2,000": (body("[" * 2_000 + "]" * 2_000), 400, "too_deep"),
    "depth 100,000": (body("[" * 100_000 + "]" * 100_000), 400, "too_deep"),
    "a list": (b"[]", 400, "invalid_type"),
    "a string": (json.dumps(CANARY).encode(), 400, "invalid_type"),
    "null": (b"null", 400, "invalid_type"),
    "unknown key": (json.dumps(BODY | {CANARY * 9: 1}).encode(), 400, "unknown_parameter"),
    "odd key": (json.dumps(BODY | {"a\r\nb: " + CANARY: 1}).encode(), 400, "unknown_parameter"),
    "too long": (json.dumps({"x": "y" * 400_000}).encode(), 413, None),
}


def test_a_hostile_body_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    http = api.http()
    for name, (data, status, code) in HOSTILE.items():
        with subtests.test(name):
            reply = http.post("/v1/batches", content=data, headers=JSON)

            assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), reply.text
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
            assert reply.headers["x-request-id"].startswith("req_")
            assert CANARY not in reply.text


def test_a_compressed_body_is_refused(api: Api) -> None:
    for encoding in ("gzip", "br", "deflate, gzip", "x"):
        headers = JSON | {"content-encoding": encoding}

        reply = api.http().post("/v1/batches", content=gzip.compress(json.dumps(BODY).encode()), headers=headers)

        assert (reply.status_code, reply.json()["error"]["type"]) == (415, "invalid_request_error"), encoding


def test_another_content_type_is_refused(api: Api) -> None:
    assert api.http().post("/v1/batches", data=BODY).status_code == 415


REFUSED = [
    ("GET", "/nope", 404),
    ("GET", "/v1/batches/", 404),
    ("PUT", "/v1/batches", 405),
    ("PATCH", "/v1/files/x", 405),
    ("GET", "/v1/batches/%00", 404),
    ("GET", "/v1/batches/batch_" + "0" * 32, 404),
    ("GET", "/v1/batches/batch_" + "\u0663" * 32, 404),
    ("GET", "/v1/batches/%252e%252e", 404),
    ("GET", "/v1/files/..%2f..%2fetc", 404),
    ("GET", "/v1/files/" + "9" * 5000, 404),
    ("GET", "/v1/files/file-%00/content", 404),
    ("DELETE", "/v1/files/file-'%20OR%201=1", 404),
    ("GET", "/v1/files?limit=-1", 400),
    ("GET", "/v1/files?limit=1e9", 400),
    ("GET", "/v1/files?order=sideways", 400),
    ("GET", "/v1/files?after=%27;--", 400),
    ("GET", "/v1/models/%00", 404),
    ("POST", "/v1/batches/x/cancel", 404),
    *[("GET", f"/v1/batches?{q}", 400) for q in ("limit=0", "limit=101", "limit=x", "after=%00")],
    ("GET", "/v1/batches?limit=" + "9" * 5000, 400),
]


def test_every_refusal_has_the_envelope(api: Api, subtests: pytest.Subtests) -> None:
    http = api.http()
    for method, path, status in REFUSED:
        with subtests.test(f"{method} {path[:60]}"):
            reply = http.request(method, path)

            assert reply.status_code == status
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
            assert reply.headers["x-request-id"].startswith("req_")
            assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_page_of_files_of_an_unknown_purpose_is_empty(api: Api) -> None:
    assert api.http().get("/v1/files?purpose=%00").json()["data"] == []


def test_the_client_sees_code_and_param(api: Api) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        api.client().batches.list(limit=1000)

    assert (caught.value.param, caught.value.type) == ("limit", "invalid_request_error")
    assert caught.value.request_id is not None


def test_an_error_on_our_side_is_a_500_without_its_text(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    with_owner(api, "ALTER TABLE batch RENAME COLUMN priority TO hidden")

    reply = api.http().post("/v1/batches", json=BODY | {"metadata": {"k": CANARY}})

    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "server_error"
    assert reply.headers["x-should-retry"] == "false"
    assert CANARY not in reply.text + "".join(capfd.readouterr())


def with_owner(api: Api, statement: str) -> None:
    with psycopg.connect(api.dsn, autocommit=True) as connection:
        connection.execute(statement)


def test_a_database_that_does_not_answer_is_a_503(api: Api, api_settings: Settings) -> None:
    nowhere = api_settings.model_copy(update={"database_url": SecretStr("postgresql://slackwater@127.0.0.1:1/none")})
    nowhere.__dict__.pop("dsn", None)
    with running(nowhere) as url:
        http = Api(url, "").http(api.key)
        reply, ready, alive = http.get("/v1/batches"), http.get("/readyz"), http.get("/healthz")
        http.close()

    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
    assert 0 < int(reply.headers["retry-after"]) <= 60
    assert (ready.status_code, ready.json()["reason"]) == (503, "database_unavailable")
    assert alive.status_code == 200


def test_an_old_schema_is_not_ready(api: Api) -> None:
    assert api.http("").get("/readyz").status_code == 200
    with_owner(api, "UPDATE alembic_version SET version_num = 'older'")

    assert api.http("").get("/readyz").json() == {"status": "unavailable", "reason": "not_migrated"}


def test_metrics_name_no_id_and_need_a_key_through_a_proxy(api: Api) -> None:
    http = api.http()
    made = http.post("/v1/batches", json=BODY).json()["id"]
    http.get(f"/v1/batches/{made}")

    text = http.get("/metrics").text
    assert 'route="/v1/batches/{batch_id}"' in text
    assert made not in text
    assert http.get("/metrics", headers={"x-forwarded-for": "203.0.113.9"}).status_code == 403
    proxied = api.http(api.admin_key).get("/metrics", headers={"x-forwarded-for": "203.0.113.9"})
    assert proxied.status_code == 200
