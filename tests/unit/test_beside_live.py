"""The pieces of the live benchmark that run without an engine: the load, what a stream says, the figures, the table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.beside_live.chat import Heard, hear
from benchmarks.beside_live.figures import Admission, Phase, Tail, admission, batch_tokens, rate
from benchmarks.beside_live.load import (
    MOST_OUTPUT,
    MOST_PROMPT,
    TRACE_BEGIN,
    Stretch,
    batch_lines,
    chats,
    shorter,
    stretches,
)
from benchmarks.beside_live.report import table, verdicts
from scheduler.simulator.traces import Arrival

PHASE = [Stretch(0, 10, True), Stretch(10, 20, False), Stretch(20, 30, True)]


def an_hour(seconds: float = 3600) -> list[Arrival]:
    return [Arrival(at / 2, 800, 80) for at in range(int(seconds * 2))]


def a_phase(name: str = "ours", *, p99: float = 0.2, idle: float | None = 90.0, flaps: int = 0) -> Phase:
    tail = Tail(0.05, 0.1, p99)
    return Phase(name, 60.0, 100, 0, tail, tail, 100.0, idle, 50.0, 9, Admission(240, 30, 2, 2, flaps, {}))


def test_chat_fills_the_busy_stretches_one_after_the_other() -> None:
    """Twenty seconds of the trace become two stretches of ten; the idle one between them holds nothing."""
    placed = chats(an_hour(), PHASE, 1.0, seed=1)

    assert [a.at for a in placed] == [n / 2 for n in range(20)] + [20 + n / 2 for n in range(20)]
    assert {(a.prompt, a.output) for a in placed} == {(100, 10)}
    later = [Arrival(TRACE_BEGIN + 10, 800, 80)]
    assert [a.at for a in chats(later, PHASE, 1.0, seed=1)] == [20]


def test_the_same_seed_gives_the_same_load() -> None:
    assert chats(an_hour(), PHASE, 0.4, seed=3) == chats(an_hour(), PHASE, 0.4, seed=3)
    assert chats(an_hour(), PHASE, 0.4, seed=3) != chats(an_hour(), PHASE, 0.4, seed=4)
    assert batch_lines(5, "a", 1) == batch_lines(5, "a", 1)


@pytest.mark.parametrize(("given", "made"), [((1, 1), (1, 2)), ((80_000, 9_000), (MOST_PROMPT, MOST_OUTPUT))])
def test_lengths_stay_within_the_model(given: tuple[int, int], made: tuple[int, int]) -> None:
    assert shorter(*given) == made


def test_batch_lines_share_no_prefix_with_another_phase() -> None:
    """A cached prefix of an earlier phase would make the later one faster."""
    first, second = (json.loads(batch_lines(1, salt, 1))["body"]["messages"][0]["content"] for salt in "ab")

    assert first[0] != second[0]
    assert first[1:] == second[1:]


def test_stretches_alternate() -> None:
    assert [(s.begin, s.end, s.is_busy) for s in stretches(1, 20.0)] == [(0, 20, True), (20, 40, False)]


def event(**members: Any) -> bytes:
    return b"data: " + json.dumps({"choices": []} | members).encode() + b"\n"


def test_only_tokens_are_heard_as_tokens() -> None:
    heard = Heard(1.0)
    for at, line in enumerate(
        [
            event(choices=[{"delta": {"role": "assistant", "content": ""}}]),
            b"\n",
            event(choices=[{"delta": {"content": "a"}}]),
            event(choices=[{"delta": {"content": "b"}}]),
            event(usage={"prompt_tokens": 31}),
            b"data: [DONE]\n",
        ]
    ):
        hear(heard, line, float(at))

    assert heard.token_at == [2.0, 3.0]
    assert (heard.first_token_seconds, heard.gaps, heard.prompt_tokens) == (1.0, [1.0], 31)
    assert heard.failed is None


def test_an_error_in_the_stream_is_a_failure() -> None:
    heard = Heard(0.0)
    hear(heard, b'data: {"error": {"message": "broken"}}\n', 1.0)

    assert "broken" in (heard.failed or "")


def test_batch_tokens_are_what_the_engine_counted_less_what_chat_got() -> None:
    """A chat that begins in one stretch and ends in the next: its prompt is in the first, its tokens where they came."""
    heard = [Heard(9.0, [9.5, 9.9, 10.5], prompt_tokens=100)]
    tokens = batch_tokens([0, 1000, 1500, 1500], PHASE, heard)

    assert tokens == [1000 - 102, 500 - 1, 0]
    assert rate(tokens, PHASE, busy=False) == 49.9
    assert rate(tokens, PHASE) == pytest.approx((898 + 499) / 30)
    assert rate([], [], busy=True) is None


def lines(*reasons: tuple[float, str | None]) -> list[dict[str, Any]]:
    return [{"at": at, "reason": reason} for at, reason in reasons]


def test_a_passing_wait_is_a_moment_and_a_full_feed_no_hold() -> None:
    log = lines((0, None), (1, "full"), (1.25, "live_waiting"), (1.5, None), (1.75, "full"))

    assert admission(log) == Admission(5, 1, 0, 0, 0, {"full": 2, "live_waiting": 1})


def test_a_stop_soon_after_its_start_is_a_flap() -> None:
    log = lines(
        (0, None), (10, "live_waiting"), (12, None), (16, "no_signal"), (18, None), (30, "live_waiting"), (32, None)
    )
    found = admission(log)

    assert (found.stops, found.starts, found.flaps, found.moments) == (3, 3, 1, 0)


def test_a_hold_that_the_log_cuts_is_a_stop() -> None:
    assert admission(lines((0, None), (1, "live_waiting"))).stops == 1


def test_percentiles_are_by_nearest_rank() -> None:
    assert Tail.of([float(n) for n in range(1, 201)]) == Tail(100.0, 190.0, 198.0)
    assert Tail.of([7.0]) == Tail(7.0, 7.0, 7.0)
    assert Tail.of([]) is None


def test_the_table_has_ratios_to_chat_alone_and_batch_alone() -> None:
    alone, ours = a_phase("alone", p99=0.2), a_phase(p99=0.3, idle=90.0)
    head, _, row = table([ours], alone, a_phase("batch alone")).splitlines()

    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == head.count("|") - 1
    assert cells[:7] == ["ours", "50 / 100 / 300", "1.50", "50 / 100 / 300", "1.50", "90", "90%"]


def test_the_aim_is_judged_part_by_part() -> None:
    """1.25 × 200 ms and 10 ms are 260 ms; 80 % of 100 tokens a second are 80."""
    alone, reference = a_phase("alone", p99=0.2), a_phase("batch alone")

    assert [v.split(":")[0] for v in verdicts(a_phase(p99=0.26, idle=80.0), alone, reference)] == ["met"] * 3
    missed = verdicts(a_phase(p99=0.261, idle=79.0, flaps=1), alone, reference)
    assert [v.split(":")[0] for v in missed] == ["missed"] * 3
