"""Files as clients really send them, through the validate duty: what runs, in which order, and what is refused with which words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.duties.plan import SYNC_EVERY
from slackwater.lifecycle import BatchState
from tests.scenario import MODEL, Scenario, chat_line

OTHER = "other-chat"


@pytest.fixture
def scenario(dsn: str) -> Iterator[Scenario]:
    scenario = Scenario.on(dsn, models=(MODEL, OTHER))
    yield scenario
    scenario.close()


def errors(scenario: Scenario, batch_id: int) -> list[dict[str, Any]]:
    row = scenario.row(batch_id)
    assert BatchState(row["state"]) is BatchState.FAILED
    data: list[dict[str, Any]] = row["errors"]["data"]
    return data


def requests(scenario: Scenario, batch_id: int) -> list[tuple[int, str, int]]:
    """(line, custom_id, model id) in the order of running."""
    query = "SELECT line, custom_id, model_id FROM request WHERE batch_id = %s ORDER BY position"
    rows: list[Any] = scenario.connection.execute(query.encode(), (batch_id,)).fetchall()
    return rows


def body_of(scenario: Scenario, batch_id: int, position: int) -> bytes:
    """The bytes an engine would get, cut from the chunks as the claim cuts them."""
    query = """
        SELECT substr(string_agg(c.data, ''::bytea ORDER BY c.n), r.start + 1, r.length)
          FROM request r JOIN batch b ON b.id = r.batch_id JOIN file_chunk c ON c.file_id = b.file_id AND c.n >= r.chunk
         WHERE r.batch_id = %s AND r.position = %s GROUP BY r.start, r.length"""
    return bytes(scenario.one(query, batch_id, position))


def test_crlf_bom_blank_lines_and_no_final_newline(scenario: Scenario) -> None:
    data = b"\xef\xbb\xbf" + chat_line("a") + b"\r\n\r\n" + chat_line("b") + b"\r\n   \r\n" + chat_line("c")

    batch_id = scenario.batch(data)

    assert [(line, custom_id) for line, custom_id, _ in requests(scenario, batch_id)] == [(1, "a"), (3, "b"), (5, "c")]
    assert scenario.row(batch_id)["total"] == 3


def test_bodies_are_the_clients_bytes(scenario: Scenario) -> None:
    body = b'{ "z":1.0, "model":"tiny-chat" ,"messages":[{"content":"\\u00e9\xc3\xa9\\u0000","role":"user"}],"seed":12345678901234567890}'
    line = b'{"body":' + body + b',"url":"/v1/chat/completions","custom_id":"\xc3\xa9","method":"POST"}'

    batch_id = scenario.batch(b"\n\n" + line + b"\r\n")

    assert body_of(scenario, batch_id, 0) == body


def test_two_models_run_as_two_groups(scenario: Scenario) -> None:
    lines = [chat_line(f"r{n}", model=(MODEL, OTHER)[n % 2]) for n in range(6)]

    batch_id = scenario.batch(lines)

    assert [custom_id for _, custom_id, _ in requests(scenario, batch_id)] == ["r0", "r2", "r4", "r1", "r3", "r5"]
    assert scenario.one("SELECT count(*) FROM batch_model WHERE batch_id = %s", batch_id) == 2


def test_a_shared_prefix_runs_together(scenario: Scenario) -> None:
    lines = [chat_line(f"r{n}", text=f"{'ab'[n % 2]} prompt") for n in range(4)]

    batch_id = scenario.batch(lines)

    assert [custom_id for _, custom_id, _ in requests(scenario, batch_id)] == ["r0", "r2", "r1", "r3"]


def test_fifty_thousand_lines_run_and_one_more_is_refused(scenario: Scenario) -> None:
    lines = [chat_line(f"r{n}") for n in range(50_000)]

    whole = scenario.batch(lines)
    over = scenario.batch([*lines, chat_line("one-more")])

    assert scenario.row(whole)["total"] == 50_000
    assert scenario.one("SELECT count(*), sum(n) FROM segment WHERE batch_id = %s", whole) == 782
    assert scenario.one("SELECT sum(n) FROM segment WHERE batch_id = %s", whole) == 50_000
    assert [(e["code"], e["line"]) for e in errors(scenario, over)] == [("too_many_requests_in_batch", 50_001)]


def test_a_line_over_the_limit_is_refused_by_name(scenario: Scenario) -> None:
    data = chat_line("a") + b"\n" + chat_line("big", text="x" * (16 << 20)) + b"\n" + chat_line("c")

    batch_id = scenario.batch(data)

    assert [(e["code"], e["line"]) for e in errors(scenario, batch_id)] == [("line_too_long", 2)]


def test_a_body_longer_than_a_chunk_is_whole(scenario: Scenario) -> None:
    long = chat_line("long", text="y" * (3 << 20))

    batch_id = scenario.batch([chat_line("a"), long, chat_line("b")])

    assert json.loads(body_of(scenario, batch_id, 2)) == json.loads(long)["body"]


@pytest.mark.parametrize("lines", [1, SYNC_EVERY - 1, SYNC_EVERY, SYNC_EVERY + 1, 2 * SYNC_EVERY + 1])
def test_any_number_of_chunks_is_read_whole(lines: int, scenario: Scenario) -> None:
    data = [chat_line(f"r{n:02}") for n in range(lines)]

    batch_id = scenario.batch(data, chunk=len(data[0]) + 1)

    assert scenario.one("SELECT max(chunk) + 1 FROM request WHERE batch_id = %s", batch_id) == lines
    assert [json.loads(body_of(scenario, batch_id, n)) for n in range(lines)] == [
        json.loads(line)["body"] for line in data
    ]


def test_a_file_refused_at_its_start_leaves_the_connection_to_the_next(scenario: Scenario) -> None:
    array = scenario.batch(b"[\n" + b"1,\n" * 1_000, chunk=64, plan_now=False)
    good = scenario.batch([chat_line("a")], plan_now=False)

    scenario.plan()

    assert [e["code"] for e in errors(scenario, array)] == ["invalid_json_line"]
    assert [custom_id for _, custom_id, _ in requests(scenario, good)] == ["a"]


def test_a_duplicate_names_both_lines(scenario: Scenario) -> None:
    batch_id = scenario.batch([chat_line("same"), chat_line("b"), chat_line("same")])

    (error,) = errors(scenario, batch_id)
    assert (error["code"], error["line"], error["param"]) == ("duplicate_custom_id", 3, "custom_id")
    assert "line 1" in error["message"]
    assert scenario.one("SELECT count(*) FROM segment") == 0


def test_every_bad_line_is_named(scenario: Scenario) -> None:
    batch_id = scenario.batch([b"{", chat_line("ok"), b'{"custom_id":"x"}', chat_line("m", model="nobody")])

    found = [(e["code"], e["line"]) for e in errors(scenario, batch_id)]
    assert found == [("invalid_json_line", 1), ("missing_required_parameter", 3), ("model_not_found", 4)]


def test_skipping_bad_lines_runs_the_good_ones(scenario: Scenario) -> None:
    batch_id = scenario.batch([b"{", chat_line("a"), chat_line("a"), chat_line("b")], on_invalid="skip")

    assert [custom_id for _, custom_id, _ in requests(scenario, batch_id)] == ["a", "b"]
    assert scenario.row(batch_id)["total"] == 4
    assert [(line["custom_id"], line["error"]["code"]) for line in scenario.lines(batch_id)] == [
        (None, "invalid_json_line"),
        (None, "duplicate_custom_id"),
    ]


def test_a_refused_line_keeps_its_name(scenario: Scenario) -> None:
    wrong = chat_line("named").replace(b'"POST"', b'"GET"')

    batch_id = scenario.batch([wrong, chat_line("b")], on_invalid="skip")

    assert [(line["custom_id"], line["error"]["code"]) for line in scenario.lines(batch_id)] == [
        ("named", "invalid_method")
    ]


def test_an_unknown_input_file_fails_the_batch(scenario: Scenario) -> None:
    batch_id = scenario.batch([chat_line("a")], plan_now=False)
    scenario.connection.execute("UPDATE batch SET file_id = NULL WHERE id = %s", (batch_id,))

    scenario.plan()

    assert [(e["code"], e["param"]) for e in errors(scenario, batch_id)] == [("invalid_request", "file_id")]
    assert scenario.one("SELECT type FROM event WHERE batch_id = %s", batch_id) == "batch.failed"
