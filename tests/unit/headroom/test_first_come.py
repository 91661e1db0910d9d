"""A replica that schedules as vLLM's V1: by turns, whoever a request is of, with one cap on every prompt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulator.costs import costs
from scheduler.simulator.first_come import FirstComeReplica
from scheduler.simulator.iteration import Limits, Sequence

LIMITS = Limits(chunk=1024, cap=256, first_come=True)


def sequence(id_: int, prompt: int, output: int, at: float, *, is_live: bool) -> Sequence:
    return Sequence(id_, prompt, output, at, is_live=is_live)


def test_the_cap_meets_live_and_batch_prompts_alike() -> None:
    replica = FirstComeReplica(costs(), LIMITS)
    live, own = sequence(1, 600, 4, 0.0, is_live=True), sequence(2, 600, 4, 0.1, is_live=False)
    replica.arrive(live)
    replica.arrive(own)

    it = replica.step(1, 0.2)

    assert (live.past, own.past) == (256, 256)
    assert (it.live_prompt, it.own_prompt) == (256, 256)


def test_what_came_first_is_read_first() -> None:
    replica = FirstComeReplica(costs(), LIMITS)
    own = [sequence(n, 4000, 4, 0.0 + n / 10, is_live=False) for n in range(4)]
    for s in own:
        replica.arrive(s)
    replica.step(1, 1.0)
    live = sequence(9, 500, 4, 1.0, is_live=True)
    replica.arrive(live)

    replica.step(1, 1.1)

    assert [s.past for s in own] == [512] * 4
    assert live.past == 0


def test_nobody_is_let_in_behind_a_prompt_that_found_the_tokens_spent() -> None:
    replica = FirstComeReplica(costs(), Limits(chunk=600, cap=256, first_come=True))
    own = [sequence(n, 2000, 4, n / 10, is_live=False) for n in range(3)]
    late = sequence(9, 1, 3, 0.9, is_live=True)
    for s in (*own, late):
        replica.arrive(s)

    replica.step(1, 1.0)
    replica.step(1, 1.1)

    assert [s.past for s in own] == [512, 512, 176]
    assert late.past == 0


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 40), st.booleans()), min_size=1, max_size=25))
def test_every_token_is_made_once(requests: list[tuple[int, int, bool]]) -> None:
    replica, now = FirstComeReplica(costs(), LIMITS), 0.0
    for n, (prompt, output, is_live) in enumerate(requests):
        replica.arrive(sequence(n, prompt, output, n / 1000, is_live=is_live))
    read, ended, steps = 0, list[int](), 0
    while len(ended) < len(requests):
        it = replica.step(1, now)
        now += it.ms / 1000
        read += it.live_prompt + it.own_prompt
        ended += [s.id for s in (*it.ended_live, *it.ended_own)]
        steps += 1
        assert it.live_prompt + it.own_prompt + it.decoding <= LIMITS.chunk
        assert steps < 20_000
    assert read == sum(prompt for prompt, _, _ in requests)
    assert sorted(ended) == list(range(len(requests)))
    assert replica.kv == replica.reserved == 0
