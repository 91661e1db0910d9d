"""How one request chooses its tokens. Needs torch, not the weights."""

import pytest

torch = pytest.importorskip("torch")

from workers.engine.request import Sampling  # noqa: E402
from workers.engine.sampler import Sampler, nucleus  # noqa: E402

pytestmark = pytest.mark.engine

LOGITS = torch.tensor([1.0, 3.0, 2.0, 0.0])


def chosen(sampling: Sampling, times: int, *, allowed: object = None) -> list[int]:
    sampler = Sampler(sampling)
    return [sampler.choose(LOGITS, allowed) for _ in range(times)]


def test_temperature_zero_takes_the_likeliest() -> None:
    assert chosen(Sampling(temperature=0), 3) == [1, 1, 1]


def test_a_tiny_temperature_is_no_overflow() -> None:
    assert chosen(Sampling(temperature=1e-300, seed=1), 3) == [1, 1, 1]


def test_one_seed_makes_one_sequence() -> None:
    assert chosen(Sampling(seed=5), 30) == chosen(Sampling(seed=5), 30)
    assert chosen(Sampling(seed=5), 30) != chosen(Sampling(seed=6), 30)


def test_draws_follow_the_probabilities() -> None:
    drawn = chosen(Sampling(seed=1), 4000)
    shares = torch.tensor([drawn.count(token) / 4000 for token in range(4)])

    assert torch.allclose(shares, LOGITS.softmax(0), atol=0.03)


def test_top_p_zero_leaves_only_the_likeliest() -> None:
    assert set(chosen(Sampling(top_p=0.0, seed=1), 50)) == {1}


def test_a_forbidden_token_is_never_chosen() -> None:
    allowed = torch.tensor([True, False, False, True])

    assert set(chosen(Sampling(seed=1, temperature=2.0), 200, allowed=allowed)) == {0, 3}
    assert chosen(Sampling(temperature=0), 1, allowed=allowed) == [0]


def test_penalties_turn_the_choice_away_from_what_was_made() -> None:
    assert chosen(Sampling(temperature=0, presence_penalty=1.5), 2) == [1, 2]
    assert chosen(Sampling(temperature=0, frequency_penalty=0.6), 4) == [1, 1, 2, 1]


def test_the_callers_logits_are_left_as_they_were() -> None:
    before = LOGITS.clone()
    chosen(Sampling(temperature=0, presence_penalty=2.0), 3, allowed=torch.tensor([True, True, False, True]))

    assert torch.equal(before, LOGITS)


@pytest.mark.parametrize(("top_p", "kept"), [(0.0, [2]), (0.5, [2]), (0.6, [2, 0]), (0.9, [2, 0, 3])])
def test_the_nucleus_is_the_fewest_that_reach_top_p(top_p: float, kept: list[int]) -> None:
    probabilities = torch.tensor([0.25, 0.0, 0.5, 0.25], dtype=torch.float64)

    assert nucleus(probabilities, top_p).tolist() == kept


def test_the_whole_nucleus_leaves_out_what_is_impossible() -> None:
    probabilities = torch.tensor([0.25, 0.0, 0.5, 0.25], dtype=torch.float64)

    assert nucleus(probabilities, 1.0).tolist() == [0, 2, 3]
