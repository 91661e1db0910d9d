"""What the next iteration of our own engine holds, and what of batch work it may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """What the next iteration of our own engine would hold before batch prompts.

    `sequences` decode and hold `kv_ratio` of the cache, of them `own_sequences` and `own_kv_ratio` for batches. `live_prompt` are live
    prompt tokens and `live_attention` their Σ chunk·(past + chunk/2); `live_waiting` live requests will not begin in it; `past` is how far
    the batch prompt at hand has come.
    """

    sequences: int
    kv_ratio: float
    own_sequences: int = 0
    own_kv_ratio: float = 0.0
    live_prompt: int = 0
    live_attention: float = 0.0
    live_waiting: int = 0
    past: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Batch work of one iteration: prompt tokens, and whether the batch requests that decode take part."""

    prompt_tokens: int
    decode: bool
