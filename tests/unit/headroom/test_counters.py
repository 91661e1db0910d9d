"""What is learned from the counters of an upstream that counts a prompt only when it has been read to its end, as vLLM does."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from scheduler.admission import EngineReading, OwnLoad
from scheduler.headroom.counters import LESSON_SECONDS, Counters
from scheduler.headroom.feed import Feed
from scheduler.headroom.iteration_model import IterationModel

BASE_MS, SEQUENCE_MS, TOKEN_MS = 12.0, 0.06, 0.045


@dataclass
class Upstream:
    """Reads one prompt at a time, `chunk` tokens an iteration, beside what decodes; now and then a prompt comes."""

    random: Random
    chunk: int
    seconds: float = 0.0
    iterations: int = 0
    tokens: int = 0
    left: list[int] = field(default_factory=list)
    prompt: int = 0
    read: int = 0

    def step(self) -> None:
        if self.read == self.prompt and len(self.left) < 8 and self.random.random() < 0.02:
            self.prompt, self.read = self.random.choice([2000, 4000, 8000]), 0
        chunk = min(self.chunk, self.prompt - self.read)
        self.seconds += (BASE_MS + SEQUENCE_MS * len(self.left) + TOKEN_MS * chunk) / 1000
        self.iterations += 1
        self.tokens += len(self.left)
        self.left = [n - 1 for n in self.left if n > 1]
        self.read += chunk
        if chunk and self.read == self.prompt:
            self.tokens += self.prompt + 1
            self.left.append(self.random.randint(10, 60))

    def reading(self) -> EngineReading:
        return EngineReading(0.0, len(self.left) + (self.read < self.prompt), 0, 0.05, self.iterations, self.tokens)


@pytest.mark.parametrize("chunk", [256, 512])
@pytest.mark.parametrize("seed", range(3))
def test_prompts_that_are_counted_late_do_not_mislead_the_model(chunk: int, seed: int) -> None:
    """From sample to sample, prompts and time seem unrelated: the model then takes prompts to be free, and decoding to be slow."""
    upstream, model = Upstream(Random(seed), chunk), IterationModel()
    counters, feed, sampled = Counters(), Feed(), 0.0
    while upstream.seconds < 180:
        upstream.step()
        if upstream.seconds >= sampled:
            sampled = upstream.seconds + 0.25
            counters.see(upstream.reading(), OwnLoad(1), upstream.seconds, model, feed)

    decoding = model.milliseconds(4, 0.05, 0)
    reading = model.milliseconds(4, 0.05, 250) - decoding
    assert decoding == pytest.approx(BASE_MS + 4 * SEQUENCE_MS, rel=0.3)
    assert reading > 0.4 * 250 * TOKEN_MS


def test_a_pause_ends_a_lesson() -> None:
    """Time in which nothing ran is no part of an iteration."""
    counters, model, feed = Counters(), IterationModel(), Feed()
    half = LESSON_SECONDS * 0.6
    for at, running, iterations in ((0.0, 1, 0), (half, 1, 10), (2 * half, 0, 12), (50.0, 1, 13), (50.0 + half, 1, 23)):
        reading = EngineReading(0.0, running, 0, 0.1, iterations, iterations)
        counters.see(reading, OwnLoad(1), at, model, feed)

    assert model.seen == 0
