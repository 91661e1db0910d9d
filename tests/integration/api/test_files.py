"""Files, as the OpenAI SDK uploads, lists, reads and deletes them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import httpx2
import openai
import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater.storage.blobs import CHUNK_BYTES
from tests.integration.api.conftest import Api
from tests.waiting import until

LINES = b'{"custom_id":"a"}\n{"custom_id":"b"}\n'
ODD = b"\xef\xbb\xbf{}\r\n\r\n\x00\xff\xfe not UTF-8 \xc3\n--boundary\r\n--\r\nno final newline"


def test_every_form_of_upload_round_trips(api: Api, tmp_path: Path) -> None:
    client, path = api.client(), tmp_path / "input.jsonl"
    path.write_bytes(ODD)
    with path.open("rb") as handle:
        made = [
            client.files.create(file=("named.jsonl", ODD, "application/jsonl"), purpose="batch"),
            client.files.create(file=ODD, purpose="batch"),
            client.files.create(file=path, purpose="batch"),
            client.files.create(file=handle, purpose="batch"),
        ]

    assert [file.filename for file in made] == ["named.jsonl", "upload", "input.jsonl", "input.jsonl"]
    for file in made:
        assert (file.bytes, file.status, file.purpose, file.object) == (len(ODD), "processed", "batch", "file")
        assert client.files.content(file.id).read() == ODD
        assert client.files.retrieve(file.id) == file


def test_many_chunks_come_back_as_one_file(api: Api, worker: Connection[TupleRow]) -> None:
    source = random.Random(7)
    data = b"".join(source.randbytes(source.randrange(1, 400_000)).replace(b"\n", b" ") + b"\n" for _ in range(20))
    data += b"x" * (CHUNK_BYTES * 2 + 17)

    file = api.client().files.create(file=("big.jsonl", data), purpose="batch")

    assert api.client().files.content(file.id).read() == data
    chunks = worker.execute("SELECT start, data FROM file_chunk ORDER BY n").fetchall()
    assert [start for start, _ in chunks] == [sum(len(d) for _, d in chunks[:n]) for n in range(len(chunks))]
    assert all(len(chunk) <= CHUNK_BYTES for _, chunk in chunks)
    assert [chunk.endswith(b"\n") for _, chunk in chunks[:-3]] == [True] * (len(chunks) - 3)
    assert [len(chunk) for _, chunk in chunks[-3:]] == [CHUNK_BYTES, CHUNK_BYTES, 17]


def test_an_empty_file_is_stored(api: Api) -> None:
    file = api.client().files.create(file=("empty.jsonl", b""), purpose="batch")

    assert file.bytes == 0
    assert api.client().files.content(file.id).read() == b""


def test_expiry_is_thirty_days_for_batch_input_unless_asked_otherwise(api: Api) -> None:
    client = api.client()
    usual = client.files.create(file=LINES, purpose="batch")
    asked = client.files.create(file=LINES, purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    kept = client.files.create(file=LINES, purpose="user_data")

    assert usual.expires_at == usual.created_at + 30 * 86_400
    assert asked.expires_at == asked.created_at + 3600
    assert kept.expires_at is None


def test_an_expired_file_is_gone(api: Api, worker: Connection[TupleRow]) -> None:
    file = api.client().files.create(file=LINES, purpose="batch")
    worker.execute("UPDATE file SET expires_at = now() - interval '1 s'")

    with pytest.raises(openai.NotFoundError):
        api.client().files.retrieve(file.id)
    assert api.client().files.list().data == []


def test_lists_page_through_in_both_orders(api: Api) -> None:
    client = api.client()
    made = [client.files.create(file=(f"{n}.jsonl", LINES), purpose="batch").id for n in range(5)]
    client.files.create(file=LINES, purpose="vision")

    ascending = [file.id for file in client.files.list(limit=2, order="asc", purpose="batch")]
    descending = [file.id for file in client.files.list(limit=2, purpose="batch")]

    assert ascending == made
    assert descending == made[::-1]
    first = client.files.list(limit=5, purpose="batch")
    assert first.has_more is False


def test_paging_survives_the_deletion_of_what_was_paged(api: Api) -> None:
    client = api.client()
    made = [client.files.create(file=LINES, purpose="batch").id for _ in range(5)]

    gone = [client.files.delete(file.id).id for file in client.files.list(limit=2, order="asc")]

    assert gone == made
    assert client.files.list().data == []


def test_a_deleted_file_answers_404_at_once(api: Api) -> None:
    client = api.client()
    file = client.files.create(file=LINES, purpose="batch")

    gone = client.files.delete(file.id)

    assert (gone.id, gone.deleted, gone.object) == (file.id, True, "file")
    for act in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            act(file.id)


NAMES = [
    ("../../etc/passwd", "passwd"),
    ("a\u200bb\u202egnp.jsonl", "abgnp.jsonl"),
    ("e\u0301.jsonl", "\u00e9.jsonl"),
    ("C:\\temp\\x.jsonl", "x.jsonl"),
    ("n" * 400, "n" * 255),
    ("..", "upload"),
]


def test_names_are_for_display_only(api: Api, subtests: pytest.Subtests) -> None:
    for given, shown in NAMES:
        with subtests.test(given[:20]):
            file = api.client().files.create(file=(given, LINES), purpose="batch")

            reply = api.http().get(f"/v1/files/{file.id}/content")

            assert file.filename == shown
            assert reply.headers["content-disposition"].isascii()
            assert reply.headers["x-content-type-options"] == "nosniff"


RANGES = [
    ("bytes=0-3", 206, 0, 4),
    ("bytes=5-", 206, 5, 36),
    ("bytes=-4", 206, 32, 36),
    ("bytes=-400", 206, 0, 36),
    ("bytes=30-900", 206, 30, 36),
    ("bytes=0-0,2-3", 200, 0, 36),
    ("bytes=9-3", 200, 0, 36),
    ("lines=1-2", 200, 0, 36),
    ("bytes=-", 200, 0, 36),
]


def test_a_range_of_an_uploaded_file(api: Api, subtests: pytest.Subtests) -> None:
    file, http = api.client().files.create(file=LINES, purpose="batch"), api.http()
    for header, status, start, stop in RANGES:
        with subtests.test(header):
            reply = http.get(f"/v1/files/{file.id}/content", headers={"range": header})

            assert (reply.status_code, reply.content) == (status, LINES[start:stop])
            shown = f"bytes {start}-{stop - 1}/36" if status == 206 else None
            assert reply.headers.get("content-range") == shown


BEYOND = ["bytes=36-", "bytes=99-100", "bytes=-0"]


def test_a_range_the_file_does_not_have(api: Api) -> None:
    file = api.client().files.create(file=LINES, purpose="batch")
    for header in BEYOND:
        reply = api.http().get(f"/v1/files/{file.id}/content", headers={"range": header})

        assert (reply.status_code, reply.headers["content-range"]) == (416, "bytes */36"), header
        assert reply.json()["error"]["code"] == "range_not_satisfiable"


def test_a_tag_saves_a_second_download(api: Api) -> None:
    file, http = api.client().files.create(file=LINES, purpose="batch"), api.http()
    tag = http.get(f"/v1/files/{file.id}/content").headers["etag"]

    assert http.get(f"/v1/files/{file.id}/content", headers={"if-none-match": tag}).status_code == 304
    stale = {"if-range": '"other"', "range": "bytes=0-1"}
    assert http.get(f"/v1/files/{file.id}/content", headers=stale).content == LINES


def test_readers_who_walk_away_leave_no_connection_behind(api: Api) -> None:
    """More of them than the pool has connections; then everybody is still served."""
    file = api.client().files.create(file=bytes(24 * CHUNK_BYTES), purpose="batch")
    for _ in range(25):
        with api.http() as http, http.stream("GET", f"/v1/files/{file.id}/content") as reply:
            next(reply.iter_bytes(1024))

    assert len(api.client().files.content(file.id).read()) == 24 * CHUNK_BYTES
    with psycopg.connect(api.dsn, autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %'"
        until(lambda: connection.execute(query).fetchone() == (0,))


def test_a_range_across_chunks(api: Api) -> None:
    data = os.urandom(3 * CHUNK_BYTES).replace(b"\n", b" ")
    file = api.client().files.create(file=data, purpose="batch")

    at = CHUNK_BYTES - 5
    header = {"range": f"bytes={at}-{2 * CHUNK_BYTES + 5}"}
    reply = api.http().get(f"/v1/files/{file.id}/content", headers=header)

    assert reply.content == data[at : 2 * CHUNK_BYTES + 6]


def form(*parts: tuple[str, str], end: bool = True) -> bytes:
    body = b"".join(
        f"--X\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n".encode() for head, value in parts
    )
    return body + (b"--X--\r\n" if end else b"")


FORM = {"content-type": "multipart/form-data; boundary=X"}
PURPOSE = ('name="purpose"', "batch")
FILE = ('name="file"; filename="a"', "{}")


def post(http: httpx2.Client, body: bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
    return http.post("/v1/files", content=body, headers=FORM | (headers or {}))


WRONG_FORMS: list[tuple[bytes, str | None]] = [
    (form(FILE), "purpose"),
    (form(PURPOSE), "file"),
    (form(('name="purpose"', "batch_output"), FILE), "purpose"),
    (form(PURPOSE, FILE, FILE), "file"),
    (form(PURPOSE, FILE, ('name="expires_after[seconds]"', "3600")), "expires_after.anchor"),
    (
        form(PURPOSE, ('name="expires_after[anchor]"', "created_at"), ('name="expires_after[seconds]"', "1"), FILE),
        "expires_after.seconds",
    ),
    (form(PURPOSE, FILE, end=False), None),
    (form(*[('name="p"', "x")] * 40), None),
    (form(('filename="no name"', "x")), None),
    (b"", None),
    (b"not a form at all", None),
    (form(('name="purpose"', "b" * 5000), FILE), None),
    (b"--X\r\n" + b"a: b\r\n" * 5000, None),
]


def test_a_wrong_form_is_refused_and_leaves_nothing(api: Api, worker: Connection[TupleRow]) -> None:
    http = api.http()
    for body, param in WRONG_FORMS:
        reply = post(http, body)

        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), body[:200]
    query = "SELECT (SELECT count(*) FROM file), (SELECT count(*) FROM file_chunk)"
    assert worker.execute(query).fetchone() == (0, 0)


def test_fields_may_come_after_the_file(api: Api) -> None:
    assert post(api.http(), form(FILE, PURPOSE)).json()["purpose"] == "batch"


OTHER_TYPES = ["application/json", "multipart/form-data", "multipart/mixed; boundary=X"]


def test_only_form_data_with_a_boundary_is_read(api: Api) -> None:
    for content_type in OTHER_TYPES:
        reply = post(api.http(), form(PURPOSE, FILE), {"content-type": content_type})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_multipart"), content_type


def test_a_compressed_upload_is_refused(api: Api) -> None:
    assert post(api.http(), form(PURPOSE, FILE), {"content-encoding": "gzip"}).status_code == 415
