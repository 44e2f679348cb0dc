"""What a provider charges for a token; amounts are counted in whole billionths of a dollar."""

from dataclasses import dataclass
from typing import Final

NANO: Final = 1_000_000_000
"""Billionths of a dollar in a dollar: what is counted in fractions does not add up."""
_NANO_PER_TOKEN: Final = NANO / 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model per million tokens; None if unknown."""

    usd_per_million: float | None = None
    source: str = ""
    """Where it comes from, in words."""

    def nano_usd(self, tokens: int) -> int:
        """The cost of so many tokens in billionths of a dollar; 0 if the price is unknown."""
        return round((self.usd_per_million or 0.0) * _NANO_PER_TOKEN * tokens)

    def usd(self, tokens: int) -> float | None:
        """The cost of so many tokens; None if the price is unknown."""
        return None if self.usd_per_million is None else self.nano_usd(tokens) / NANO


UNKNOWN: Final = Price()
FREE: Final = Price(0.0, "made on this machine")
