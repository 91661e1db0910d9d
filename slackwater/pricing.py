"""What tokens cost, in whole picodollars (1e-12 dollar), so that sums are exact."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

PICODOLLARS = 10**12


@dataclass(frozen=True, slots=True)
class Price:
    """Picodollars a token. Cached prompt tokens have their own price."""

    input: int = 0
    cached: int = 0
    output: int = 0

    @classmethod
    def per_million(cls, input: Decimal, output: Decimal, cached: Decimal | None = None) -> Price:
        """From dollars a million tokens, as price lists say it. Without a cached price, cached tokens cost what others do."""
        scale = Decimal(PICODOLLARS) / 1_000_000
        return cls(int(input * scale), int((input if cached is None else cached) * scale), int(output * scale))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. `cached_tokens` is None where the engine does not tell: unknown is not zero."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None


def cost(usage: Usage, price: Price) -> int:
    """Picodollars for `usage`; unknown cached tokens are charged as plain input."""
    cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
    return (usage.prompt_tokens - cached) * price.input + cached * price.cached + usage.completion_tokens * price.output


def dollars(picodollars: int) -> str:
    """Picodollars as an exact decimal number of dollars, for example `0.00024`."""
    return format((Decimal(picodollars) / PICODOLLARS).normalize(), "f")
