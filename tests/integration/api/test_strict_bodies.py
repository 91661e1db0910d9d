"""Every POST route, every body that breaks peers (VE-06 and more): refused with the envelope, never a 5xx, nothing echoed."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.app import create_app
from slackwater.settings import Settings
from tests.integration.api.conftest import Api

CASES = Path(__file__).parents[2] / "cases"
CANARY = "SECRET-CANARY"
JSON = {"content-type": "application/json"}
REFUSED = {400, 404, 413, 422}
NOBODY = {
    "batch_id": "batch_" + "0" * 32,
    "upload_id": "upload_" + "0" * 32,
    "file_id": "file-" + "0" * 32,
}


def named(text: str) -> bytes:
    """A value under names that some route knows, and under one that none does."""
    names = (
        "input_file_id",
        "filename",
        "part_ids",
        "url",
        "name",
        "metadata",
        "model",
        "bytes",
        "events",
        "requests",
        "other",
    )
    return ("{" + ",".join(f'"{name}":{text}' for name in names) + "}").encode()


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": f"{CANARY} not json at all".encode(),
    "two values": b"{} {}",
    "NaN": named("NaN"),
    "minus infinity": named("-Infinity"),
    "1e400": named("1e400"),
    "-1e400": named("-1e400"),
    "2^64": named(str(2**64)),
    "4,301 digits": named("7" * 4301),
    "lone surrogate": named(f'"{CANARY}\\ud83d"'),
    "lone surrogate in a list": named(f'["\\udc00","{CANARY}"]'),
    "lone surrogate as name": f'{{"\\ud83d{CANARY}":1}}'.encode(),
    "NUL": named(f'"{CANARY}\\u0000"'),
    "NUL as name": f'{{"\\u0000{CANARY}":1}}'.encode(),
    "raw NUL": named('"\0"'),
    "bad UTF-8": b'{"name":"\xff\xfe"}',
    "overlong UTF-8": b'{"name":"\xc0\xaf"}',
    "UTF-16": named("1").decode().encode("utf-16"),
    "UTF-32": named("1").decode().encode("utf-32-le"),
    "BOM": b"\xef\xbb\xbf" + named("1"),
    "repeated name": f'{{"{CANARY}":1,"{CANARY}":2}}'.encode(),
    "depth 2,000": named("[" * 2000 + "]" * 2000),
    "depth 100,000": b"[" * 100_000,
    "a list": f'["{CANARY}"]'.encode(),
    "a string": f'"{CANARY}"'.encode(),
    "null": b"null",
    "unknown member": f'{{"no plain word: {CANARY}":"{CANARY}"}}'.encode(),
    "header in a name": f'{{"a\\r\\nset-cookie: {CANARY}":1}}'.encode(),
    "wrong types": named(f'{{"no plain word: {CANARY}":["{CANARY}"]}}'),
    "statement": named(f'"\'; DROP TABLE file; -- {CANARY}\\u001b[31m"'),
}


@pytest.fixture
def posts(api_settings: Settings) -> list[str]:
    """The path of every POST route, with ids that name nothing."""
    paths = create_app(api_settings).openapi()["paths"]
    posts = [path for path, operations in paths.items() if "post" in operations]
    return [path.format_map(Named()) for path in posts]


class Named(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return NOBODY.get(name, "nothing")


def test_every_route_refuses_every_hostile_body(api: Api, posts: list[str], subtests: pytest.Subtests) -> None:
    http = api.http(api.admin_key)
    assert len(posts) >= 15
    for path in posts:
        for name, body in BODIES.items():
            with subtests.test(f"{path} {name}"):
                reply = http.post(path, content=body, headers=JSON)

                assert reply.status_code in REFUSED, reply.text
                assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
                assert CANARY not in reply.text
                assert not any(CANARY in value for value in reply.headers.values())


def test_the_blocks_of_the_case_are_refused(api: Api, subtests: pytest.Subtests) -> None:
    """VE-06, with a file that is there."""
    file = api.client().files.create(file=b"{}\n", purpose="batch")
    lines = (CASES / "VE-06-request-bodies.http.txt").read_bytes().splitlines()[1:]
    http, asked = api.http(), 0
    for head, body in zip(lines[::2], lines[1::2], strict=True):
        method, path = head.decode().split()
        with subtests.test(f"{asked}: {body[:60]!r}"):
            reply = http.request(method, path, content=body.replace(b"FILE", file.id.encode()), headers=JSON)
            if reply.status_code == 200:
                assert http.get(f"{path}/{reply.json()['id']}").json()["status"] == "validating", (
                    "what is wrong is in the file"
                )
            else:
                assert reply.status_code in REFUSED, reply.text
                assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
        asked += 1
    assert asked == 8


def test_a_real_upload_refuses_every_hostile_body(api: Api, subtests: pytest.Subtests) -> None:
    """An id that names something does not let a body through."""
    upload = api.client().uploads.create(filename="a", purpose="batch", bytes=1, mime_type="a/b")
    http = api.http()
    for name, body in BODIES.items():
        with subtests.test(name):
            reply = http.post(f"/v1/uploads/{upload.id}/complete", content=body, headers=JSON)
            assert reply.status_code == 400, reply.text
            assert CANARY not in reply.text
