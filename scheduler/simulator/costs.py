"""How long one iteration of an engine takes: fitted tables of public measurements. Times are milliseconds.

    t = per_iteration + per_sequence·n + GEMM(tokens) + LM(sequences)
        + [decode0 + decode1·n_decoding + decode2·KV]      where something decodes
        + [prefill0 + prefill1·Σ chunk·(past + chunk/2)]   where something prefills

The tables know tile-aligned sizes; between them the time is linear. Two overheads were picked on measured rows
(`docs/headroom.md`).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

DEFAULT_MODEL: Final = "70b-fp8-h200-tp2"
PER_ITERATION_MS: Final = 1.0
PER_SEQUENCE_MS: Final = 0.02
LARGEST: Final = 8192


@dataclass(frozen=True, slots=True)
class Costs:
    """One model on one kind of GPU. `gemm` and `lm` are indexed by tokens."""

    gemm: tuple[float, ...]
    lm: tuple[float, ...]
    prefill: tuple[float, float]
    decode: tuple[float, float, float]
    per_iteration: float = PER_ITERATION_MS
    per_sequence: float = PER_SEQUENCE_MS

    def iteration_ms(self, decoding: int, kv_tokens: float, prefill_tokens: int, work: float, ended: int) -> float:
        """Milliseconds of an iteration; `work` is Σ chunk·(past + chunk/2), `ended` the prompts that end in it."""
        t = self.per_iteration + self.per_sequence * decoding + self.gemm[decoding + prefill_tokens]
        t += self.lm[decoding + ended]
        if decoding:
            a, b, c = self.decode
            t += a + b * decoding + c * kv_tokens
        if prefill_tokens:
            a, b = self.prefill
            t += a + b * work
        return t


@lru_cache(maxsize=8)
def costs(model: str = DEFAULT_MODEL) -> Costs:
    """The fitted costs of a model.

    Raises:
        KeyError: no such model in the tables.
    """
    table: dict[str, Any] = json.loads(files(__package__).joinpath("costs.json").read_text())["models"][model]
    tokens = table["tokens"]
    a, b = table["prefill"]
    d0, d1, d2 = table["decode"]
    return Costs(_dense(tokens, table["gemm_ms"]), _dense(tokens, table["lm_ms"]), (a, b), (d0, d1, d2))


def _dense(at: list[int], values: list[float]) -> tuple[float, ...]:
    """A value for every size from 0 to `LARGEST`, linear between those of the table."""
    return tuple(_between(at, values, n) for n in range(LARGEST + 1))


def _between(at: list[int], values: list[float], n: int) -> float:
    i = bisect_left(at, n)
    if i == 0 or at[i] == n:
        return values[i]
    share = (n - at[i - 1]) / (at[i] - at[i - 1])
    return values[i - 1] + share * (values[i] - values[i - 1])
