"""What a provider charges for a token; amounts are counted in whole billionths of a dollar."""

from dataclasses import dataclass
from typing import Final

NANO: Final = 1_000_000_000
"""Billionths of a dollar in a dollar: what is counted in fractions does not add up."""
_NANO_PER_TOKEN: Final = NANO / 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Of a model, for a million tokens; None where nobody knows it."""

    usd_per_million: float | None = None
    source: str = ""
    """Where it comes from, in words."""

    def nano_usd(self, tokens: int) -> int:
        """What so many tokens cost, in billionths of a dollar; nothing where nobody knows."""
        return round((self.usd_per_million or 0.0) * _NANO_PER_TOKEN * tokens)

    def usd(self, tokens: int) -> float | None:
        """What so many tokens cost; None where nobody knows."""
        return None if self.usd_per_million is None else self.nano_usd(tokens) / NANO


UNKNOWN: Final = Price()
FREE: Final = Price(0.0, "made on this machine")
