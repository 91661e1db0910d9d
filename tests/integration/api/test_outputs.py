"""The output and error files of a batch, while it runs and once it is final."""

from __future__ import annotations

import random

import openai
import pytest
from openai.types import Batch

from slackwater.storage.outputs import PAGE_BYTES
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker, finish, row_of, run, store


def a_batch(api: Api) -> Batch:
    client = api.client()
    file = client.files.create(file=b"{}", purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")


def test_a_side_appears_with_its_first_line(api: Api, worker: Worker) -> None:
    client, made = api.client(), a_batch(api)
    batch = row_of(worker, made.id)
    ids = worker.execute("SELECT output_file_id, error_file_id FROM batch").fetchone()
    assert ids is not None
    output_id, error_id = ids
    run(worker, batch, 3)

    assert client.batches.retrieve(made.id).output_file_id is None
    for hidden in (output_id, error_id):
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(hidden)
    store(worker, batch, 2, b'{"line":2}\n')

    assert client.batches.retrieve(made.id).output_file_id == output_id
    assert client.batches.retrieve(made.id).error_file_id is None
    file = client.files.retrieve(output_id)
    assert (file.purpose, file.filename, file.bytes) == ("batch_output", f"{made.id}_output.jsonl", 0)
    assert [found.id for found in client.files.list(purpose="batch_output")] == [output_id]
    store(worker, batch, 1, b'{"line":1}\n', outcome=1)
    assert client.files.content(error_id).read() == b'{"line":1}\n'


def test_a_growing_file_is_whole_and_kept_by_nobody(api: Api, worker: Worker) -> None:
    made = a_batch(api)
    batch = row_of(worker, made.id)
    run(worker, batch, 3)
    for line in (3, 1):
        store(worker, batch, line, b'{"line":%d}\n' % line)
    output_id = api.client().batches.retrieve(made.id).output_file_id

    reply = api.http().get(f"/v1/files/{output_id}/content", headers={"range": "bytes=0-2"})

    assert (reply.status_code, reply.content) == (200, b'{"line":1}\n{"line":3}\n')
    assert reply.headers["cache-control"] == "no-store"
    assert not {"etag", "accept-ranges", "content-range", "content-length"} & set(reply.headers)


def test_a_final_file_gives_every_range(api: Api, worker: Worker) -> None:
    made, source = a_batch(api), random.Random(3)
    batch = row_of(worker, made.id)
    run(worker, batch, 1500)
    sides: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
    for line in range(1, 1501):
        side = int(source.random() < 0.2)
        sides[side][line] = b"%d:" % line + b"x" * source.randrange(1, 60) + b"\n"
    rows = [(batch.tenant_id, batch.id, n, side, body) for side in sides for n, body in sides[side].items()]
    with worker.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO result (tenant_id, batch_id, line, outcome, prompt_tokens, completion_tokens, attempt, body)"
            " VALUES (%s, %s, %s, %s, 0, 0, 1, %s)",
            rows,
        )
    finish(worker, batch, sides)
    done = api.client().batches.retrieve(made.id)
    assert (done.status, done.output_file_id is None, done.error_file_id is None) == ("completed", False, False)

    for side, file_id in enumerate((done.output_file_id, done.error_file_id)):
        data = b"".join(sides[side].values())
        assert file_id is not None
        assert api.client().files.retrieve(file_id).bytes == len(data)
        check_ranges(api, file_id, data, source)


def check_ranges(api: Api, file_id: str, data: bytes, source: random.Random) -> None:
    http, path = api.http(), f"/v1/files/{file_id}/content"
    whole = http.get(path)
    assert (whole.content, whole.headers["content-length"]) == (data, str(len(data)))
    assert whole.headers["etag"]
    for _ in range(40):
        start = source.randrange(len(data))
        stop = source.randrange(start + 1, len(data) + 1)
        reply = http.get(path, headers={"range": f"bytes={start}-{stop - 1}"})
        assert (reply.status_code, reply.content) == (206, data[start:stop])
    assert http.get(path, headers={"range": f"bytes={len(data)}-"}).status_code == 416


def test_long_lines_come_in_small_pages(api: Api, worker: Worker) -> None:
    made = a_batch(api)
    batch = row_of(worker, made.id)
    run(worker, batch, 6)
    lines = [bytes([65 + n]) * (PAGE_BYTES * 2 // 3) + b"\n" for n in range(6)]
    for n, line in enumerate(lines):
        store(worker, batch, n + 1, line)
    output_id = api.client().batches.retrieve(made.id).output_file_id
    assert output_id is not None

    with api.client().files.with_streaming_response.content(output_id) as reply:
        assert b"".join(reply.iter_bytes()) == b"".join(lines)


def test_results_stand_on_their_own_when_the_input_is_deleted(api: Api, worker: Worker) -> None:
    client, made = api.client(), a_batch(api)
    batch = row_of(worker, made.id)
    run(worker, batch, 1)
    store(worker, batch, 1, b"{}\n")
    output_id = client.batches.retrieve(made.id).output_file_id
    assert output_id is not None
    client.files.delete(made.input_file_id)

    assert client.files.content(output_id).read() == b"{}\n"
    client.files.delete(output_id)

    with pytest.raises(openai.NotFoundError):
        client.files.content(output_id)
    assert client.batches.retrieve(made.id).output_file_id == output_id


def test_a_file_whose_bytes_have_vanished_is_not_found(api: Api, worker: Worker) -> None:
    """A file that was purged since it was found must not look like a shorter file."""
    made = a_batch(api)
    batch = row_of(worker, made.id)
    run(worker, batch, 2)
    finish(worker, batch, {0: {1: b"{}\n", 2: b"{}\n"}})
    output_id = api.client().batches.retrieve(made.id).output_file_id

    assert api.http().get(f"/v1/files/{output_id}/content").status_code == 404
