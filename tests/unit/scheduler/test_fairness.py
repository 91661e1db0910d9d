"""Whose turn it is: shares by weight first, then pressure, priority, warmth and age."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler.fairness import Place, rank

DAY = 86_400.0


def place(
    batch_id: int, tenant_id: int = 1, *, weight: int = 1, served: int = 0, left: float = DAY, priority: int = 0
) -> Place:
    return Place(tenant_id, batch_id, 1, priority, weight, served, left, DAY)


def order(*line: Place, since: dict[int, int] | None = None, recent: tuple[int, ...] = ()) -> list[int]:
    return [p.batch_id for p in rank(line, since=since or {}, recent=recent)]


@given(
    weights=st.lists(st.integers(1, 20), min_size=2, max_size=6),
    sizes=st.lists(st.integers(1, 500), min_size=1, max_size=5),
    served=st.integers(0, 2_000),
)
def test_served_shares_converge_to_the_weights(weights: list[int], sizes: list[int], served: int) -> None:
    """However unequal the claims and the beginning, after many claims each tenant has its share to within one claim."""
    line = [place(t, t, weight=w, served=served if t == 0 else 0) for t, w in enumerate(weights)]
    since: Counter[int] = Counter()
    for n in range(2_000):
        turn = rank(line, since=since)[0]
        since[turn.tenant_id] += sizes[n % len(sizes)]
    per_weight = [(p.served_tokens + since[p.tenant_id]) / p.weight for p in line if since[p.tenant_id]]

    assert max(per_weight) - min(per_weight) <= max(sizes)


@given(
    st.permutations(
        [place(n, n % 3, weight=1 + n % 2, served=n % 4, left=n * 3000.0, priority=n % 2) for n in range(9)]
    )
)
def test_the_order_does_not_depend_on_how_the_line_was_read(line: list[Place]) -> None:
    ranked = order(*line)

    assert ranked == order(*sorted(line, key=lambda p: p.batch_id))
    assert sorted(ranked) == list(range(9))


def test_a_pressed_batch_goes_before_priority_inside_its_tenant() -> None:
    assert order(place(1, priority=9), place(2, left=DAY / 10), place(3, left=DAY / 20)) == [3, 2, 1]


def test_pressure_does_not_take_from_another_tenant() -> None:
    assert order(place(1, 1, served=100, left=1.0), place(2, 2, served=10)) == [2, 1]


def test_priority_then_warmth_then_age() -> None:
    assert order(place(1), place(2, priority=1), place(3)) == [2, 1, 3]
    assert order(place(1), place(3), recent=(3,)) == [3, 1]
    assert order(place(3), place(1)) == [1, 3]


def test_what_was_claimed_since_counts_as_served() -> None:
    assert order(place(1, 1), place(2, 2), since={1: 50}) == [2, 1]
    assert replace(place(1), seconds_left=-5.0).is_pressed
