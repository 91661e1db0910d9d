"""What an upstream's counters tell: the mean iteration between two samples, and how many iterations have passed by now."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from scheduler.admission import EngineReading, OwnLoad
from scheduler.headroom.feed import Feed
from scheduler.headroom.iteration_model import IterationModel

LEAST_SECONDS: Final = 0.02
LESSON_SECONDS: Final = 1.0


@dataclass
class Lesson:
    """Sums over samples in a row while the engine was busy. `sequences`, `kv` and `attention` are summed over the iterations.

    vLLM counts a prompt when it has been read to its end, and all of it then: between two samples there may be none of a prompt
    that was read, or all of one that was read before. Over a second or more that evens out.
    """

    seconds: float = 0.0
    iterations: int = 0
    sequences: float = 0.0
    kv: float = 0.0
    prompt: float = 0.0
    attention: float = 0.0

    def add(self, seconds: float, n: int, running: float, kv: float, prompt: float, attention: float) -> None:
        self.seconds += seconds
        self.iterations += n
        self.sequences += running * n
        self.kv += kv * n
        self.prompt += prompt
        self.attention += attention

    def teach(self, model: IterationModel) -> bool:
        """Once it is long enough; then it is over."""
        n = self.iterations
        if self.seconds < LESSON_SECONDS or not n:
            return False
        model.learn(
            self.seconds * 1000 / n, self.sequences / n, self.kv / n, max(0.0, self.prompt) / n, self.attention / n
        )
        return True


@dataclass
class Counters:
    """The last sample that was used, when it was taken, and the pace since the one before it, in iterations a second."""

    last: EngineReading | None = None
    at: float = 0.0
    pace: float = 0.0
    lesson: Lesson = field(default_factory=Lesson)

    def forget(self) -> None:
        """Samples stopped: the next one starts anew."""
        self.last, self.lesson = None, Lesson()

    def iteration(self, now: float, most: float = inf) -> float | None:
        """The engine's iteration by now: the one last seen, and those that have passed since at the pace of then, `most` a second."""
        if self.last is None or self.last.iterations is None:
            return None
        return self.last.iterations + max(0.0, now - self.at) * min(self.pace, most)

    def see(self, engine: EngineReading, own: OwnLoad, now: float, model: IterationModel, feed: Feed) -> None:
        """Teach the model and the feed what happened since the last sample. A counter that went back (a restart) teaches nothing."""
        at = now - engine.age_seconds
        was, seconds = self.last, at - self.at
        if was is not None and seconds < LEAST_SECONDS:
            return
        self.last, self.at = engine, at
        if was is None or None in (was.iterations, was.iteration_tokens, engine.iterations, engine.iteration_tokens):
            return
        n = (engine.iterations or 0) - (was.iterations or 0)
        tokens = (engine.iteration_tokens or 0) - (was.iteration_tokens or 0)
        if n < 0 or tokens < 0:
            return
        running = ((engine.running or 0) + (was.running or 0)) / 2
        prompt = tokens - running * n
        feed.see(max(0.0, prompt) / seconds, own.mine / own.total if own.total else 1.0, seconds)
        attention = feed.attention(was.iterations or 0, engine.iterations or 0)
        self.pace = n / seconds
        if not (engine.running and was.running):
            self.lesson = Lesson()
            return
        self.lesson.add(seconds, n, running, (cache(engine) + cache(was)) / 2, prompt, attention)
        if self.lesson.teach(model):
            self.lesson = Lesson()


def cache(engine: EngineReading) -> float:
    """The share of the cache in use; 0 where the engine does not tell, which then only takes this limit away."""
    ratio = engine.kv_used_ratio
    return ratio if ratio is not None and 0.0 <= ratio <= 1.0 else 0.0
