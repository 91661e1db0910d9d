"""How a batch is cut into segments."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scheduler.duties.planned import segments

RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 200)), max_size=6)


@given(RUNS)
def test_segments_cover_all_positions_once_and_hold_one_model(runs: list[tuple[int, int]]) -> None:
    models = [model for model, n in runs for _ in range(n)]

    cut = list(segments(models))

    assert [p for _, first, n in cut for p in range(first, first + n)] == list(range(len(models)))
    assert all(set(models[first : first + n]) == {model} for model, first, n in cut)
    assert all(1 <= n <= 64 for _, _, n in cut)


@given(RUNS)
def test_no_two_neighbours_could_be_one(runs: list[tuple[int, int]]) -> None:
    cut = list(segments([model for model, n in runs for _ in range(n)]))

    assert all(a[0] != b[0] or a[2] == 64 for a, b in pairwise(cut))
