"""Lists: cursors, limits, order, and no page without end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slackwater.conformance.expect import equal, holds, members, ok, refused
from slackwater.conformance.registry import Group
from slackwater.conformance.session import NO_BATCH, NO_FILE, Session

files = Group("files.list", "1.2")
batches = Group("batches.list", "1.10")
PAGE = ("object", "data", "first_id", "last_id", "has_more")


def _page(session: Session, path: str, **query: object) -> dict[str, Any]:
    page = ok(session.get(path, params={name: str(value) for name, value in query.items()}))
    members(page, PAGE, "page")
    equal("object", page["object"], "list")
    return page


def _walk(session: Session, path: str, wanted: set[str], **query: object) -> Iterator[str]:
    """Ids from page to page until all wanted ones were seen."""
    after: dict[str, object] = {}
    while wanted:
        page = _page(session, path, **query, **after)
        ids = [item["id"] for item in page["data"]]
        yield from ids
        wanted -= set(ids)
        if not page["has_more"]:
            return
        holds(ids, "an empty page says has_more")
        after = {"after": page["last_id"]}


def _batches(session: Session, count: int = 5) -> list[str]:
    """Ids of batches, oldest first; they fail at once, since their file does not exist."""
    make = lambda: [ok(session.create(input_file_id=NO_FILE))["id"] for _ in range(count)]  # noqa: E731
    return list(session.shared.once("batches", make))


@files.check("{object: list, data, first_id, last_id, has_more}")
def page_is_complete(session: Session) -> None:
    session.small_files(5)
    page = _page(session, "/v1/files", limit=2)
    equal("first_id", page["first_id"], page["data"][0]["id"])
    equal("last_id", page["last_id"], page["data"][-1]["id"])


@files.check("limit=2 gives two objects and has_more")
def limit_holds(session: Session) -> None:
    session.small_files(5)
    page = _page(session, "/v1/files", limit=2)
    equal("items", len(page["data"]), 2)
    equal("has_more", page["has_more"], True)


@files.check("after=<last id> goes on behind it, each file once")
def cursor_walks_all(session: Session) -> None:
    ids = session.small_files(5)
    seen = [one for one in _walk(session, "/v1/files", set(ids), limit=2) if one in ids]
    equal("files seen", sorted(seen), sorted(ids))


@files.check("order=asc is the oldest first, desc (the default) the newest first")
def order_is_kept(session: Session) -> None:
    ids = session.small_files(5)
    down = [one for one in _walk(session, "/v1/files", set(ids), limit=100) if one in ids]
    up = [one for one in _walk(session, "/v1/files", set(ids), limit=100, order="asc") if one in ids]
    equal("asc", up, list(ids))
    equal("desc", down, list(reversed(ids)))


@files.check("purpose filters")
def purpose_filters(session: Session) -> None:
    other = ok(session.upload(b"x", {"purpose": "user_data"}))["id"]
    ids = [item["id"] for item in _page(session, "/v1/files", purpose="user_data", limit=100)["data"]]
    purposes = {item["purpose"] for item in _page(session, "/v1/files", purpose="user_data", limit=100)["data"]}
    equal("purposes", purposes, {"user_data"})
    holds(other in ids, "the file of that purpose is not in its list")


@files.check("400 for limit=0")
def refuses_no_limit(session: Session) -> None:
    refused(session.get("/v1/files?limit=0"), 400, param="limit")


@files.check("400 for limit over 10,000")
def refuses_a_high_limit(session: Session) -> None:
    refused(session.get("/v1/files?limit=10001"), 400, param="limit")


@files.check("400 for another order")
def refuses_another_order(session: Session) -> None:
    refused(session.get("/v1/files?order=size"), 400, param="order")


@files.check("400 or 404 with the envelope for an unknown cursor")
def refuses_an_unknown_cursor(session: Session) -> None:
    reply = session.get(f"/v1/files?after={NO_FILE}")
    refused(reply, 404 if reply.status_code == 404 else 400)


@batches.check("{object: list, data, first_id, last_id, has_more}, the newest first")
def newest_first(session: Session) -> None:
    ids = _batches(session)
    seen = [one for one in _walk(session, "/v1/batches", set(ids), limit=100) if one in ids]
    equal("order", seen, list(reversed(ids)))


@batches.check("after=<last id> goes on behind it, each batch once")
def walks_all(session: Session) -> None:
    ids = _batches(session)
    seen = [one for one in _walk(session, "/v1/batches", set(ids), limit=2) if one in ids]
    equal("batches seen", sorted(seen), sorted(ids))


@batches.check("no page is empty and says has_more; the last one says has_more: false")
def ends(session: Session) -> None:
    _batches(session)
    after: dict[str, object] = {}
    for _ in range(1_000):
        page = _page(session, "/v1/batches", limit=100, **after)
        if not page["has_more"]:
            return
        holds(page["data"], "an empty page says has_more")
        after = {"after": page["last_id"]}
    holds(False, "the list does not end")


@batches.check("400 naming limit for limit=101")
def refuses_over_a_hundred(session: Session) -> None:
    refused(session.get("/v1/batches?limit=101"), 400, param="limit")


@batches.check("400 naming limit for limit=0")
def refuses_zero(session: Session) -> None:
    refused(session.get("/v1/batches?limit=0"), 400, param="limit")


@batches.check("400 naming limit for limit=many")
def refuses_a_word(session: Session) -> None:
    refused(session.get("/v1/batches?limit=many"), 400, param="limit")


@batches.check("400 or 404 with the envelope for an unknown cursor")
def unknown_cursor(session: Session) -> None:
    reply = session.get(f"/v1/batches?after={NO_BATCH}")
    refused(reply, 404 if reply.status_code == 404 else 400)
