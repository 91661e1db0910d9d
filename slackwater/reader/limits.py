"""What a batch file and a JSON body may measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits are inclusive: a line of exactly `max_line_bytes` passes."""

    max_line_bytes: int = 16 << 20
    max_requests: int = 50_000
    max_depth: int = 100
    max_custom_id_bytes: int = 512
    max_kept_errors: int = 100


LIMITS = Limits()
