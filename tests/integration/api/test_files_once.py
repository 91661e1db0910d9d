"""A file, an upload or a part that is sent again is made once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker
from tests.integration.api.test_files import FILE, FORM, PURPOSE, form
from tests.integration.api.test_upload_limits import dial, stored
from tests.integration.api.test_uploads import CREATE
from tests.waiting import until

KEYED = {"idempotency-key": "k-1"}
RESENT = {"x-stainless-retry-count": "1"}
OTHERS = [
    form(PURPOSE, ('name="file"; filename="a"', "[]")),
    form(PURPOSE, ('name="file"; filename="b"', "{}")),
    form(('name="purpose"', "user_data"), FILE),
    form(PURPOSE, ('name="expires_after[anchor]"', "created_at"), ('name="expires_after[seconds]"', "3600"), FILE),
]
Send = Callable[[httpx2.Client, dict[str, str]], httpx2.Response]


def send_file(http: httpx2.Client, headers: dict[str, str], body: bytes = form(PURPOSE, FILE)) -> httpx2.Response:
    return http.post("/v1/files", content=body, headers=FORM | headers)


def send_upload(http: httpx2.Client, headers: dict[str, str], **changes: Any) -> httpx2.Response:
    return http.post("/v1/uploads", json=CREATE | changes, headers=headers)


def same(replies: list[httpx2.Response]) -> list[str]:
    """The marks of replies that show one object."""
    assert {reply.status_code for reply in replies} == {200}
    assert all(reply.json() == replies[0].json() for reply in replies)
    return sorted(reply.headers.get("idempotent-replayed", "") for reply in replies)


@pytest.mark.parametrize("send", [send_file, send_upload])
def test_one_key_and_body_at_the_same_instant_make_one(api: Api, worker: Worker, send: Send) -> None:
    http = api.http()
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: send(http, KEYED), range(12)))

    assert same(replies) == [""] + ["true"] * 11
    assert stored(worker)[0] + count(worker, "upload") == 1


def count(worker: Worker, table: str) -> int:
    row = worker.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_one_key_for_another_file_is_a_conflict(api: Api, worker: Worker) -> None:
    http = api.http()
    first = send_file(http, KEYED)
    for body in OTHERS:
        refused = send_file(http, KEYED, body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")
        assert refused.headers["x-should-retry"] == "false"
    assert stored(worker) == (1, 1)
    assert send_file(api.http(api.other_key), KEYED, OTHERS[0]).json()["id"] != first.json()["id"]


def test_one_key_for_another_upload_is_a_conflict(api: Api) -> None:
    http = api.http()
    send_upload(http, KEYED)
    refused = send_upload(http, KEYED, bytes=7)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert send_file(http, KEYED).status_code == 200, "a key is used for one kind of object"


def test_a_part_with_a_key_is_stored_once(api: Api, worker: Worker) -> None:
    http, upload = api.http(), api.client().uploads.create(**CREATE)
    path, data = f"/v1/uploads/{upload.id}/parts", 'name="data"; filename="upload"'
    sent = [http.post(path, content=form((data, "{}{}{}")), headers=FORM | KEYED) for _ in range(3)]

    assert same(sent) == ["", "true", "true"]
    assert http.post(path, content=form((data, "[]")), headers=FORM | KEYED).status_code == 409
    assert stored(worker) == (1, 1)
    assert api.client().uploads.complete(upload.id, part_ids=[sent[0].json()["id"]]).status == "completed"


def test_a_replay_of_a_file_that_was_deleted_is_404(api: Api, worker: Worker) -> None:
    http = api.http()
    http.delete(f"/v1/files/{send_file(http, KEYED).json()['id']}")

    assert send_file(http, KEYED).status_code == 404
    assert count(worker, "file") == 1


@pytest.mark.parametrize("send", [send_file, send_upload])
def test_a_resend_after_a_reply_that_arrived_is_a_new_one(api: Api, send: Send) -> None:
    http = api.http()
    first = send(http, {})
    again = send(http, RESENT)
    assert first.json()["id"] != again.json()["id"]


def test_a_resend_after_a_reply_that_was_not_read_is_the_same(api: Api, worker: Worker) -> None:
    body = form(PURPOSE, FILE)
    with dial(api) as line:
        line.sendall(head(api, len(body)) + body[:-1])
        until(lambda: stored(worker)[0] == 1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        hold = lock(worker)
        line.sendall(body[-1:])
        until(lambda: waits(worker))
    until(lambda: gone(api))
    hold()
    until(lambda: count(worker, "file WHERE is_complete") == 1)

    again = send_file(api.http(), RESENT, body)

    assert again.headers["idempotent-replayed"] == "true"
    assert [file.id for file in api.client().files.list()] == [again.json()["id"]]


def head(api: Api, length: int) -> bytes:
    lines = ["POST /v1/files HTTP/1.1", "Host: t", f"Authorization: Bearer {api.key}"]
    lines += [f"Content-Type: {FORM['content-type']}", f"Content-Length: {length}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def lock(worker: Worker) -> Callable[[], object]:
    """Nobody writes a create down until the returned function is called."""
    worker.execute("BEGIN")
    worker.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    worker.execute("LOCK TABLE idempotency IN SHARE ROW EXCLUSIVE MODE")
    return lambda: worker.execute("COMMIT")


def waits(worker: Worker) -> bool:
    row = worker.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    return row is not None and row[0] > 0


def gone(api: Api) -> bool:
    """A turn of the server's loop has passed since the client went away."""
    return api.http().get("/healthz").status_code == 200
