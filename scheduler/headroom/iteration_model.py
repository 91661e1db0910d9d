"""How long an iteration of this engine takes, learned while it runs: recursive least squares whose
memory fades at a bounded rate (a Kalman filter whose coefficients wander).

    t = c0 + c1·sequences + c2·cache + c3·prompt + c4·max(0, prompt + sequences - KNEE) + c5·attention

The knee is where an iteration stops being bound by memory and starts being bound by arithmetic. Attention is
Σ chunk·(past + chunk/2) over the prompts, which only an engine of our own can tell. Milliseconds and tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from operator import mul
from typing import Final

KNEE_TOKENS: Final = 256
ATTENTION_SCALE: Final = 4e6
SEED: Final = (15.0, 4.0, 30.0, 30.0, 40.0, 15.0)
LEAST: Final = (0.5, 0.0, 0.0, 1.0, 1.0, 0.0)
FIRST_VARIANCE: Final = (100.0, 25.0, 900.0, 900.0, 900.0, 100.0)
WANDER: Final = 1e-5
NOISE_VARIANCE: Final = 9.0
OUTLIER: Final = 3.0
ENOUGH: Final = 20


@dataclass
class IterationModel:
    """Coefficients in milliseconds per scaled feature. Seeded slow, so that ignorance admits little."""

    coefficients: list[float] = field(default_factory=lambda: list(SEED))
    seen: int = 0

    def __post_init__(self) -> None:
        self._p = [[FIRST_VARIANCE[i] if i == j else 0.0 for j in range(6)] for i in range(6)]

    def milliseconds(self, sequences: float, kv_ratio: float, prompt: float, attention: float = 0.0) -> float:
        """Predicted time of an iteration."""
        c = self.coefficients
        over = prompt + sequences - KNEE_TOKENS
        t = (
            c[0]
            + c[1] * sequences / 64.0
            + c[2] * kv_ratio
            + c[3] * prompt / 1024.0
            + c[5] * attention / ATTENTION_SCALE
        )
        return t + c[4] * over / 1024.0 if over > 0 else t

    def room(self, target_ms: float, base_ms: float, tokens: float, past: float = 0.0) -> float:
        """Prompt tokens that fit into an iteration of `base_ms` and `tokens` until it takes `target_ms`; negative where it takes longer.

        `past` is how far the prompt has come: its later tokens attend to its earlier ones.
        """
        c = self.coefficients
        left = target_ms - base_ms
        slope = c[3] / 1024.0 + c[5] * past / ATTENTION_SCALE
        flat = max(0.0, KNEE_TOKENS - tokens)
        if left <= flat * slope:
            return left / slope
        return flat + (left - flat * slope) / (slope + c[4] / 1024.0)

    def learn(self, ms: float, sequences: float, kv_ratio: float, prompt: float, attention: float = 0.0) -> None:
        """Take in one measured iteration, or the mean of several."""
        if not 0.1 < ms < 5000.0:
            return
        over = max(0.0, prompt + sequences - KNEE_TOKENS)
        x = (1.0, sequences / 64.0, kv_ratio, prompt / 1024.0, over / 1024.0, attention / ATTENTION_SCALE)
        c, p = self.coefficients, self._p
        px = [sum(map(mul, row, x)) for row in p]
        variance = NOISE_VARIANCE + sum(map(mul, x, px))
        error = ms - sum(map(mul, c, x))
        most = OUTLIER * sqrt(variance)
        step = min(most, max(-most, error)) / variance
        self.coefficients = [max(least, a + g * step) for a, g, least in zip(c, px, LEAST, strict=True)]
        for i, row in enumerate(p):
            share = px[i] / variance
            for j in range(6):
                row[j] -= share * px[j]
            if row[i] < FIRST_VARIANCE[i]:
                row[i] += WANDER * FIRST_VARIANCE[i]
        self.seen += 1

    @property
    def is_learned(self) -> bool:
        return self.seen >= ENOUGH
