"""Chooses the next token of one request."""

import random
from collections import Counter

import torch

from workers.engine.request import Sampling


class Sampler:
    """Draws by the request's own seed and penalties, so that neighbours never change its choices."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._draws = random.Random(sampling.seed)  # noqa: S311 - reproducible by seed, not secret
        self._made: Counter[int] = Counter()

    def choose(self, logits: torch.Tensor, allowed: torch.Tensor | None) -> int:
        """A token id from float32 `logits` of shape [vocabulary]; `allowed` is a mask of the same shape."""
        logits = self._penalised(logits)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        token = self._greedy(logits) if self._sampling.temperature == 0 else self._drawn(logits)
        self._made[token] += 1
        return token

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        frequency, presence = self._sampling.frequency_penalty, self._sampling.presence_penalty
        if not self._made or (frequency == 0 and presence == 0):
            return logits
        tokens = torch.tensor(list(self._made))
        counts = torch.tensor(list(self._made.values()), dtype=logits.dtype)
        return logits.index_add(0, tokens, -(frequency * counts + presence))

    def _greedy(self, logits: torch.Tensor) -> int:
        return int(logits.argmax())

    def _drawn(self, logits: torch.Tensor) -> int:
        scaled = (logits - logits.max()).double() / self._sampling.temperature
        probabilities = scaled.softmax(0)
        tokens = nucleus(probabilities, self._sampling.top_p)
        sums = probabilities[tokens].cumsum(0)
        point = self._draws.random() * float(sums[-1])
        index = int(torch.searchsorted(sums, point, right=True))
        return int(tokens[min(index, len(tokens) - 1)])


def nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The fewest of the likeliest tokens whose sum reaches `top_p`, never one of probability 0."""
    if top_p == 1:
        return probabilities.nonzero()[:, 0]
    falling, tokens = probabilities.sort(descending=True, stable=True)
    kept = int((falling.cumsum(0) < top_p).sum()) + 1
    return tokens[:kept][falling[:kept] > 0]
