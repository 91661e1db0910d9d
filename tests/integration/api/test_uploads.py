"""Uploads in parts, as the OpenAI SDK sends them."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI
from openai.types import Upload

from scheduler.duties import purge
from slackwater.settings import Settings
from slackwater.storage.blobs import CHUNK_BYTES
from slackwater.storage.migrate import drift
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker
from tests.integration.api.test_files import FORM, form
from tests.integration.api.test_upload_limits import stored

MIB = 1 << 20
CREATE: dict[str, Any] = {"filename": "in.jsonl", "purpose": "batch", "bytes": 6, "mime_type": "application/jsonl"}


def started(client: OpenAI, size: int, **changes: Any) -> Upload:
    return client.uploads.create(**(CREATE | {"bytes": size} | changes))


def lines(size: int) -> bytes:
    source = random.Random(11)
    made = bytearray()
    while len(made) < size:
        made += source.randbytes(source.randrange(10, 90_000)).replace(b"\n", b" ") + b"\n"
    return bytes(made[: size - 1] + b"\n")


def test_parts_in_parallel_become_one_file_that_ends_chunks_at_line_ends(api: Api, worker: Worker) -> None:
    client, data = api.client(), lines(7 * MIB + 321)
    pieces = [data[at : at + 1_234_567] for at in range(0, len(data), 1_234_567)]
    upload = started(client, len(data))

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda piece: client.uploads.parts.create(upload.id, data=piece), pieces))
    done = client.uploads.complete(
        upload.id, part_ids=[part.id for part in parts], md5=hashlib.md5(data).hexdigest().upper()
    )

    assert done.status == "completed"
    assert done.file is not None
    assert (done.file.bytes, done.file.filename, done.file.status) == (len(data), "in.jsonl", "processed")
    assert done.file == client.files.retrieve(done.file.id)
    assert client.files.content(done.file.id).read() == data
    chunks = [row[0] for row in worker.execute("SELECT data FROM file_chunk ORDER BY file_id, n").fetchall()]
    assert b"".join(chunks) == data
    assert all(len(chunk) <= CHUNK_BYTES and chunk.endswith(b"\n") for chunk in chunks)
    digest = worker.execute("SELECT sha256 FROM file").fetchone()
    assert digest == (hashlib.sha256(data).digest(),)


def test_the_objects_are_those_of_openai(api: Api) -> None:
    http = api.http()
    upload = http.post("/v1/uploads", json=CREATE | {"filename": "../a.jsonl"}).json()
    part = http.post(
        f"/v1/uploads/{upload['id']}/parts", content=form(('name="data"; filename="upload"', "{}{}{}")), headers=FORM
    )
    done = http.post(f"/v1/uploads/{upload['id']}/complete", json={"part_ids": [part.json()["id"]]}).json()

    assert upload == {
        "id": upload["id"], "object": "upload", "bytes": 6, "created_at": upload["created_at"], "filename": "a.jsonl",
        "expires_at": upload["created_at"] + 3600, "purpose": "batch", "status": "pending", "file": None,
    }  # fmt: skip
    assert part.json() == {
        "id": part.json()["id"], "object": "upload.part", "created_at": part.json()["created_at"], "upload_id": upload["id"],
    }  # fmt: skip
    assert done == upload | {"status": "completed", "file": http.get(f"/v1/files/{done['file']['id']}").json()}


def test_the_sdk_uploads_a_file_in_chunks(api: Api, tmp_path: Any) -> None:
    data, path = lines(3 * MIB), tmp_path / "big.jsonl"
    path.write_bytes(data)

    done = api.client().uploads.upload_file_chunked(
        file=path, mime_type="application/jsonl", purpose="batch", part_size=MIB
    )

    assert done.file is not None
    assert api.client().files.content(done.file.id).read() == data


def test_the_order_is_that_of_part_ids(api: Api) -> None:
    client = api.client()
    upload = started(client, 6)
    a, b, unused, c = [client.uploads.parts.create(upload.id, data=piece).id for piece in (b"aa", b"bb", b"xx", b"cc")]

    done = client.uploads.complete(upload.id, part_ids=[c, a, b])

    assert done.file is not None
    assert client.files.content(done.file.id).read() == b"ccaabb"
    assert unused not in str(done)


def test_an_empty_upload_is_an_empty_file(api: Api) -> None:
    client = api.client()

    done = client.uploads.complete(started(client, 0).id, part_ids=[])

    assert done.file is not None
    assert done.file.bytes == 0


def test_a_life_may_be_asked_for(api: Api) -> None:
    client = api.client()
    kept = client.uploads.complete(started(client, 0, purpose="user_data").id, part_ids=[]).file
    asked = {"anchor": "created_at", "seconds": 3600}
    short = client.uploads.complete(started(client, 0, expires_after=asked).id, part_ids=[]).file

    assert kept is not None
    assert short is not None
    assert kept.expires_at is None
    assert short.expires_at == short.created_at + 3600


def refusal(reply: httpx2.Response) -> tuple[int, str | None, str | None]:
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["param"]


def test_a_complete_that_does_not_fit_leaves_the_upload_pending(api: Api, worker: Worker) -> None:
    client, http = api.client(), api.http()
    upload, other = started(client, 6), started(client, 6)
    a, b = [client.uploads.parts.create(upload.id, data=piece).id for piece in (b"abc", b"def")]
    foreign = client.uploads.parts.create(other.id, data=b"def").id
    wrong: list[tuple[dict[str, Any], tuple[int, str, str]]] = [
        ({"part_ids": [a]}, (400, "bytes_mismatch", "part_ids")),
        ({"part_ids": [a, a]}, (400, "invalid_value", "part_ids")),
        ({"part_ids": [a, foreign]}, (400, "invalid_value", "part_ids")),
        ({"part_ids": [a, "part_" + "0" * 32]}, (400, "invalid_value", "part_ids")),
        ({"part_ids": [a, 1]}, (400, "invalid_type", "part_ids.1")),
        ({}, (400, "missing_required_parameter", "part_ids")),
        ({"part_ids": ["p"] * 10_001}, (400, "invalid_value", "part_ids")),
        ({"part_ids": [a, b], "md5": "0" * 32}, (400, "md5_mismatch", "md5")),
        ({"part_ids": [a, b], "md5": "zz"}, (400, "invalid_value", "md5")),
    ]
    for body, expected in wrong:
        assert refusal(http.post(f"/v1/uploads/{upload.id}/complete", json=body)) == expected

    assert worker.execute("SELECT count(*) FROM file WHERE is_complete").fetchone() == (0,)
    assert stored(worker) == (3, 3)
    assert client.uploads.complete(upload.id, part_ids=[a, b]).status == "completed"


def test_completing_again_the_same_way_is_the_same(api: Api, worker: Worker) -> None:
    client = api.client()
    upload = started(client, 4)
    a, b = [client.uploads.parts.create(upload.id, data=piece).id for piece in (b"ab", b"cd")]

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: client.uploads.complete(upload.id, part_ids=[a, b]), range(6)))

    assert all(done == made[0] for done in made)
    assert stored(worker) == (1, 1)
    with pytest.raises(openai.ConflictError) as caught:
        client.uploads.complete(upload.id, part_ids=[b, a])
    assert (caught.value.code, caught.value.response.headers["x-should-retry"]) == ("upload_completed", "false")


def test_cancel_deletes_the_parts_and_may_be_repeated(api: Api, worker: Worker) -> None:
    client = api.client()
    upload = started(client, 4)
    part = client.uploads.parts.create(upload.id, data=b"ab")

    first, second = client.uploads.cancel(upload.id), client.uploads.cancel(upload.id)

    assert first == second
    assert first.status == "cancelled"
    assert stored(worker) == (0, 0)
    for act in (
        lambda: client.uploads.parts.create(upload.id, data=b"cd"),
        lambda: client.uploads.complete(upload.id, part_ids=[part.id]),
    ):
        with pytest.raises(openai.ConflictError) as caught:
            act()
        assert caught.value.code == "upload_cancelled"
    assert stored(worker) == (0, 0)


def test_a_completed_upload_takes_no_part_and_no_cancel(api: Api) -> None:
    client = api.client()
    upload = started(client, 0)
    client.uploads.complete(upload.id, part_ids=[])

    for act in (lambda: client.uploads.parts.create(upload.id, data=b""), lambda: client.uploads.cancel(upload.id)):
        with pytest.raises(openai.ConflictError) as caught:
            act()
        assert caught.value.code == "upload_completed"


def test_an_upload_expires_after_an_hour_and_is_purged(api: Api, worker: Worker, api_settings: Settings) -> None:
    client = api.client()
    upload, going_on = started(client, 4), started(client, 2)
    part = client.uploads.parts.create(upload.id, data=b"abcd")
    kept = client.uploads.parts.create(going_on.id, data=b"ef")
    worker.execute(
        "UPDATE file SET touched_at = now() - interval '61 min' WHERE id = (SELECT min(file_id) FROM upload_part)"
    )
    with_owner(api, f"UPDATE upload SET expires_at = now() WHERE public_id = '{upload.id}'")

    for act in (
        lambda: client.uploads.parts.create(upload.id, data=b""),
        lambda: client.uploads.complete(upload.id, part_ids=[part.id]),
        lambda: client.uploads.cancel(upload.id),
    ):
        with pytest.raises(openai.ConflictError) as caught:
            act()
        assert caught.value.code == "upload_expired"
    purge.step(worker, api_settings)
    purge.step(worker, api_settings)

    assert stored(worker) == (1, 1)
    assert client.uploads.complete(going_on.id, part_ids=[kept.id]).status == "completed"
    with_owner(api, "UPDATE upload SET expires_at = now() - interval '25 hours'")
    purge.step(worker, api_settings)
    assert worker.execute("SELECT count(*) FROM upload").fetchone() == (0,)
    assert stored(worker) == (1, 1)


def with_owner(api: Api, statement: str) -> None:
    import psycopg

    with psycopg.connect(api.dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


WRONG_CREATES: list[tuple[dict[str, Any], tuple[int, str | None, str | None]]] = [
    ({"bytes": "6"}, (400, "invalid_type", "bytes")),
    ({"bytes": 6.0}, (400, "invalid_type", "bytes")),
    ({"bytes": -1}, (400, "invalid_value", "bytes")),
    ({"bytes": 200 * MIB + 1}, (413, None, None)),
    ({"bytes": 10**30}, (413, None, None)),
    ({"purpose": "batch_output"}, (400, "invalid_value", "purpose")),
    ({"filename": ""}, (400, "invalid_value", "filename")),
    ({"mime_type": "a\0"}, (400, "invalid_value", "mime_type")),
    ({"expires_after": {"anchor": "created_at", "seconds": 1}}, (400, "invalid_value", "expires_after.seconds")),
    ({"expires_after": {"anchor": "now", "seconds": 3600}}, (400, "invalid_value", "expires_after.anchor")),
]


def test_a_wrong_create_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    http = api.http()
    for changes, expected in WRONG_CREATES:
        with subtests.test(str(changes)):
            assert refusal(http.post("/v1/uploads", json=CREATE | changes)) == expected
    for name in CREATE:
        body = {key: value for key, value in CREATE.items() if key != name}
        assert refusal(http.post("/v1/uploads", json=body)) == (400, "missing_required_parameter", name)


def test_a_wrong_part_is_refused_and_leaves_nothing(api: Api, worker: Worker, subtests: pytest.Subtests) -> None:
    http, upload = api.http(), started(api.client(), 6)
    data = ('name="data"; filename="upload"', "abc")
    for body, expected in [
        (form(), (400, "missing_required_parameter", "data")),
        (form(('name="file"', "abc")), (400, "missing_required_parameter", "data")),
        (form(data, data), (400, "invalid_multipart", "data")),
        (form(('name="data"', "abcdefg")), (413, None, None)),
        (form(data, end=False), (400, "invalid_multipart", None)),
    ]:
        with subtests.test(body.decode()):
            assert refusal(http.post(f"/v1/uploads/{upload.id}/parts", content=body, headers=FORM)) == expected
            assert stored(worker) == (0, 0)


def test_parts_that_are_never_used_do_not_fill_the_disk(api: Api, worker: Worker) -> None:
    client = api.client(max_retries=0)
    upload = started(client, 4)
    for _ in range(3):
        client.uploads.parts.create(upload.id, data=b"abcd")

    with pytest.raises(openai.APIStatusError) as caught:
        client.uploads.parts.create(upload.id, data=b"abcd")

    assert (caught.value.status_code, caught.value.code) == (413, "too_many_parts")
    assert stored(worker) == (3, 3)


def test_a_foreign_upload_is_not_there(api: Api) -> None:
    upload = started(api.client(), 0)
    theirs, ours = api.http(api.other_key), "upload_" + "0" * 32
    part = form(('name="data"', ""))
    acts: list[tuple[str, dict[str, Any]]] = [
        ("parts", {"content": part, "headers": FORM}), ("complete", {"json": {"part_ids": []}}), ("cancel", {}),
    ]  # fmt: skip
    for path, options in acts:
        seen = [theirs.post(f"/v1/uploads/{name}/{path}", **options) for name in (upload.id, ours, "x", "%00")]
        assert {reply.status_code for reply in seen} == {404}
        assert len({reply.content for reply in seen}) == 1
    assert api.client().uploads.cancel(upload.id).status == "cancelled"


def test_the_tables_are_those_of_the_migration(dsn: str) -> None:
    assert drift(dsn) == []
