"""What the engine tells admission about itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """One sample of the engine.

    `kv_used_ratio` is the share of `max_batch * context` tokens that running requests hold;
    `sampled_at` is in monotonic seconds.
    """

    running: int
    waiting: int
    kv_used_ratio: float
    sampled_at: float
