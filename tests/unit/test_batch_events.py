"""The events of a batch as its row tells them: none missed, none twice, wherever a reader stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.lifecycle import ALLOWED, BatchState, may_become
from slackwater.wire.batch import STAMPS, Counts
from slackwater.wire.batch_events import Seen, is_over, news, steps

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NONE: dict[str, Any] = {
    "public_id": "batch_1", "endpoint": "", "errors": None, "input_file_id": "", "completion_window": "24h", "on_invalid": "fail",
    "retry_of": None, "output_order": "input", "webhook_metadata": None, "priority": 0,
    "output_file_id": "file-1", "error_file_id": "file-2", "total": 10, "metadata": None,
    "created_at": BEGAN, "expires_at": BEGAN,
}  # fmt: skip


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[dict[str, Any], Counts]]:
    """Rows of one batch as it goes along the graph of states, with requests ending in between."""
    row = NONE | {"state": 0} | dict.fromkeys(STAMPS)
    state, at, done, life = BatchState.VALIDATING, BEGAN, 0, []
    while True:
        for _ in range(draw(st.integers(1, 3))):
            done += draw(st.integers(0, 2)) if state is BatchState.IN_PROGRESS else 0
            life.append((dict(row), Counts(succeeded=done)))
        if not ALLOWED[state]:
            return life
        state = draw(st.sampled_from(sorted(ALLOWED[state])))
        at += timedelta(seconds=draw(st.integers(0, 2)))
        row |= {"state": int(state), f"{state.word}_at": at}


@given(lives(), st.data())
def test_a_reader_who_comes_and_goes_misses_nothing(
    life: list[tuple[dict[str, Any], Counts]], data: st.DataObject
) -> None:
    seen, told = Seen(), []
    for row, counts in life:
        if data.draw(st.booleans()) and row is not life[-1][0]:
            continue
        if is_over(row, seen):
            assert news(row, counts, seen, BEGAN) == []
        for event in news(row, counts, seen, BEGAN):
            assert event.seen > seen
            seen = Seen.of(str(event.seen))
            told.append(event)
        assert news(row, counts, seen, BEGAN) == []

    final = life[-1][0]
    assert is_over(final, seen)
    statuses = [event.type for event in told if event.type != "batch.progress"]
    assert statuses == [f"batch.{state.word}" for state, _ in steps(final)]
    assert all(may_become(old, new) for (old, _), (new, _) in pairwise(steps(final)))


@pytest.mark.parametrize("text", [None, "", "1", "-1.0", "1.2.3", "x", "1." + "9" * 10, "١.٢"])
def test_an_id_that_is_none_of_ours_is_the_beginning(text: str | None) -> None:
    assert Seen.of(text) == Seen()
