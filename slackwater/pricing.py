"""What tokens cost, in whole picodollars (1e-12 dollar), so that sums are exact."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from slackwater.reader.usage import Usage

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


def cost(usage: Usage, price: Price) -> int:
    """Picodollars for `usage`; unknown cached tokens are charged as plain input, unknown tokens not at all."""
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    cached = min(usage.cached_tokens or 0, prompt)
    return (prompt - cached) * price.input + cached * price.cached + completion * price.output


def dollars(picodollars: int) -> str:
    """Picodollars as an exact decimal number of dollars, for example `0.00024`."""
    return format((Decimal(picodollars) / PICODOLLARS).normalize(), "f")
