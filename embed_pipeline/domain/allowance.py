"""What a provider says is left of its own limits, in the headers of an answer."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

SCARCE: Final = 0.2
"""Of a limit. Whoever has more left is not told to anybody: the shared limiter would be written
twice for every request."""


@dataclass(frozen=True, slots=True)
class Left:
    """Of one limit: so much until it is whole again."""

    amount: int
    resets_in: timedelta
    limit: int | None = None

    @property
    def is_scarce(self) -> bool:
        """Whether others should know; also if nobody says what of."""
        return self.limit is None or self.amount < SCARCE * self.limit


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of requests and tokens, as far as the provider says."""

    requests: Left | None = None
    tokens: Left | None = None

    @property
    def is_scarce(self) -> bool:
        """Whether others should know."""
        return any(left is not None and left.is_scarce for left in (self.requests, self.tokens))
