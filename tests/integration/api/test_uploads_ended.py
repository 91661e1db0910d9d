"""An upload that ends while another request is at it: whoever comes too late is told how it ended, as if it had been so from the first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import httpx2
import pytest

from scheduler.duties import purge
from slackwater.settings import Settings
from slackwater.storage import uploads
from slackwater.storage.uploads import Part
from tests.integration.api.conftest import Api
from tests.integration.api.rows import Worker
from tests.integration.api.test_files import FORM, form
from tests.integration.api.test_upload_limits import stored
from tests.integration.api.test_uploads import CREATE, with_owner
from tests.races.crew import together

Act = Callable[[], Any]
PIECES = ("ab", "cd", "ef")
ROUNDS = 12


class Pending:
    """An upload of three parts, and what may end it."""

    def __init__(self, api: Api) -> None:
        self.api, self.http = api, api.http()
        self.id = self.http.post("/v1/uploads", json=CREATE).json()["id"]
        self.parts = [self.add(piece).json()["id"] for piece in PIECES]

    def add(self, piece: str = "gh") -> httpx2.Response:
        body = form(('name="data"; filename="upload"', piece))
        return self.http.post(f"/v1/uploads/{self.id}/parts", content=body, headers=FORM)

    def complete(self, order: Sequence[int] = (0, 1, 2)) -> httpx2.Response:
        return self.http.post(f"/v1/uploads/{self.id}/complete", json={"part_ids": [self.parts[n] for n in order]})

    def cancel(self) -> httpx2.Response:
        return self.http.post(f"/v1/uploads/{self.id}/cancel")

    def expire(self, worker: Worker, settings: Settings) -> None:
        """An hour passes, and the purge."""
        with_owner(self.api, "UPDATE upload SET expires_at = now() - interval '1 second'")
        clean(worker, settings)


def clean(worker: Worker, settings: Settings) -> None:
    """Nobody has touched a part for an hour."""
    worker.execute(
        "UPDATE file SET touched_at = now() - interval '61 min' WHERE id IN (SELECT file_id FROM upload_part)"
    )
    for _ in range(2):
        purge.step(worker, settings)


def told(reply: httpx2.Response) -> tuple[int, str | None]:
    return reply.status_code, reply.json().get("error", {}).get("code")


def before_parts_are_read(monkeypatch: pytest.MonkeyPatch, act: Act) -> None:
    parts = uploads.parts

    async def late(connection: Any, tenant_id: int, upload_id: int) -> list[Part]:
        monkeypatch.undo()
        await asyncio.to_thread(act)
        return await parts(connection, tenant_id, upload_id)

    monkeypatch.setattr(uploads, "parts", late)


def between_two_parts(monkeypatch: pytest.MonkeyPatch, act: Act) -> None:
    content = uploads.content

    async def late(*asked: Any) -> AsyncIterator[bytes]:
        monkeypatch.undo()
        pieces = content(*asked)
        yield await anext(pieces)
        await asyncio.to_thread(act)
        async for piece in pieces:
            yield piece

    monkeypatch.setattr(uploads, "content", late)


def after_the_last_part(monkeypatch: pytest.MonkeyPatch, act: Act) -> None:
    content = uploads.content

    async def late(*asked: Any) -> AsyncIterator[bytes]:
        monkeypatch.undo()
        async for piece in content(*asked):
            yield piece
        await asyncio.to_thread(act)

    monkeypatch.setattr(uploads, "content", late)


@pytest.mark.parametrize("when", [before_parts_are_read, between_two_parts, after_the_last_part])
@pytest.mark.parametrize("how", ["completed", "otherwise", "cancelled", "expired"])
def test_a_complete_sees_how_the_upload_ended(
    api: Api, worker: Worker, monkeypatch: pytest.MonkeyPatch, api_settings: Settings, how: str, when: Any
) -> None:
    upload = Pending(api)
    ends: dict[str, Act] = {
        "completed": upload.complete,
        "otherwise": partial(upload.complete, (2, 1, 0)),
        "cancelled": upload.cancel,
        "expired": partial(upload.expire, worker, api_settings),
    }
    seen: list[Any] = []
    when(monkeypatch, lambda: seen.append(ends[how]()))

    reply = upload.complete()

    if how == "completed":
        assert reply.status_code == 200
        assert reply.json() == seen[0].json()
    elif how == "expired" and when is after_the_last_part:
        assert reply.status_code == 200  # It was pending when it was asked to be completed, and all of it was there.
    else:
        assert told(reply) == (409, f"upload_{'completed' if how == 'otherwise' else how}")
    clean(worker, api_settings)
    is_kept = reply.status_code == 200 or how == "otherwise"
    assert stored(worker) == ((1, 1) if is_kept else (0, 0))


def test_what_does_not_fit_a_pending_upload_is_still_said(api: Api) -> None:
    upload = Pending(api)

    assert told(upload.complete((0, 1))) == (400, "bytes_mismatch")
    assert told(upload.complete((0, 0, 1))) == (400, "invalid_value")
    assert upload.complete().status_code == 200


@pytest.mark.parametrize("how", ["completed", "cancelled", "expired"])
def test_a_part_that_comes_too_late_is_told_why(
    api: Api, worker: Worker, monkeypatch: pytest.MonkeyPatch, api_settings: Settings, how: str
) -> None:
    upload, add_part = Pending(api), uploads.add_part

    async def late(*asked: Any) -> Any:
        ends: dict[str, Act] = {
            "completed": upload.complete,
            "cancelled": upload.cancel,
            "expired": partial(with_owner, api, "UPDATE upload SET expires_at = now() - interval '1 second'"),
        }
        await asyncio.to_thread(ends[how])
        return await add_part(*asked)

    monkeypatch.setattr(uploads, "add_part", late)

    assert told(upload.add()) == (409, f"upload_{how}")
    assert stored(worker) == {"completed": (1, 1), "cancelled": (0, 0), "expired": (3, 3)}[how]


def test_a_part_that_is_sent_again_too_late_is_told_why(
    api: Api, monkeypatch: pytest.MonkeyPatch, worker: Worker
) -> None:
    """Its reply was lost, and the upload was completed without waiting for the second."""
    upload, part_of = Pending(api), uploads.part_of
    again: dict[str, Any] = {
        "content": form(('name="data"; filename="upload"', "x")),
        "headers": FORM | {"idempotency-key": "p1"},
    }
    assert upload.http.post(f"/v1/uploads/{upload.id}/parts", **again).status_code == 200

    async def late(*asked: Any) -> Any:
        await asyncio.to_thread(upload.complete)
        return await part_of(*asked)

    monkeypatch.setattr(uploads, "part_of", late)

    assert told(upload.http.post(f"/v1/uploads/{upload.id}/parts", **again)) == (409, "upload_completed")
    assert stored(worker) == (1, 1)


def test_many_at_one_upload_agree_on_its_end(api: Api, worker: Worker, api_settings: Settings) -> None:
    source = random.Random(7)
    files = 0
    for _ in range(ROUNDS):
        upload = Pending(api)
        acts: list[Act] = [upload.complete] * 4 + [partial(upload.complete, (1, 0, 2)), upload.cancel, upload.add]
        replies = together(*source.sample(acts, source.randint(2, len(acts))))

        ended = upload.cancel()
        state = "cancelled" if ended.status_code == 200 else "completed"
        assert told(ended) in ((200, None), (409, "upload_completed"))
        assert {told(reply) for reply in replies} <= {(200, None), (409, f"upload_{state}")}
        made = {str(r.json()["file"]) for r in replies if r.is_success and r.json().get("file")}
        assert len(made) <= 1
        files += state == "completed"
        assert stored(worker) == (files, files)
