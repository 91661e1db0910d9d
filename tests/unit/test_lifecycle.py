"""The graph of states, and why a batch waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.explain import SENTENCES, Decision, Reason, waiting
from slackwater.lifecycle import ALLOWED, FINAL, BatchState, Outcome, RequestState, may_become

STATES = st.sampled_from(BatchState)
DECISIONS = st.builds(
    Decision, st.just("gpu-1"), st.booleans(), st.none() | st.sampled_from([r.value for r in Reason]), st.floats(0, 20)
)


@given(STATES, STATES)
def test_a_final_state_never_changes(old: BatchState, new: BatchState) -> None:
    assert not (old.is_final and may_become(old, new))


def test_every_way_ends_and_every_state_is_reached() -> None:
    seen, todo = set[BatchState](), [BatchState.VALIDATING]
    while todo:
        state = todo.pop()
        assert state not in ALLOWED[state]
        assert state.is_final == (not ALLOWED[state])
        seen.add(state)
        todo += ALLOWED[state] - seen
    assert seen == set(BatchState)
    assert {s.word for s in FINAL} == {"completed", "failed", "expired", "cancelled"}


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_is_a_final_state_of_a_request(outcome: Outcome) -> None:
    assert outcome.state.is_final
    assert not RequestState.QUEUED.is_final


@given(STATES, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.lists(DECISIONS, max_size=3))
def test_a_batch_that_waits_says_why_and_no_other_does(
    state: BatchState, ready: int, delayed: int, running: int, decisions: list[Decision]
) -> None:
    said = waiting(state, ready=ready, delayed=delayed, running=running, decisions=decisions)

    waits = state is BatchState.VALIDATING or (state is BatchState.IN_PROGRESS and not running and (ready or delayed))
    assert (said is not None) == bool(waits)
    if said is not None:
        assert Reason(said["code"]) in SENTENCES
        assert said["message"]


@pytest.mark.parametrize(
    ("decisions", "ready", "reason"),
    [
        ([], 1, Reason.NO_WORKER),
        ([Decision("a", False, "full", 5.1)], 1, Reason.NO_WORKER),
        ([Decision("a", False, "full", 0.5)], 1, Reason.FULL),
        ([Decision("a", False, "full", 0.5), Decision("b", True, None, 0.5)], 1, Reason.IN_LINE),
        ([Decision("a", False, None, 0.5)], 1, Reason.NO_SIGNAL),
        ([Decision("a", True, None, 0.5)], 0, Reason.RETRY_DELAYED),
    ],
)
def test_the_reason_is_the_newest_decision(decisions: list[Decision], ready: int, reason: Reason) -> None:
    said = waiting(BatchState.IN_PROGRESS, ready=ready, delayed=1, running=0, decisions=decisions)

    assert said is not None
    assert said["code"] == reason.value
