"""What it takes to embed everything that waits for it: told before anybody pays."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from embed_pipeline.domain.budget import Period, Unit
from embed_pipeline.domain.embedding import RequestLimits
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.rate_window import RateLimits

DAYS: Final = {Period.DAY: 1.0, Period.MONTH: 30.4}


@dataclass(slots=True)
class Packing:
    """Counts the requests that texts need, one by one, as a drain fills them."""

    limits: RequestLimits
    requests: int = 0
    texts: int = 0
    tokens: int = 0
    _inputs: int = 0
    _tokens: int = 0

    def add(self, sizes: Iterable[int]) -> None:
        """Count texts of so many tokens each; one without any is not sent."""
        for size in sizes:
            if size == 0:
                continue
            pieces = -(-size // self.limits.tokens_per_input)
            is_full = (
                self._inputs + pieces > self.limits.inputs
                or self._tokens + size > self.limits.tokens
            )
            if self._inputs == 0 or is_full:
                # One that is too much for a request takes several.
                self.requests += max(1, -(-size // self.limits.tokens))
                self._inputs = self._tokens = 0
            self._inputs += pieces
            self._tokens += size
            self.texts += 1
            self.tokens += size


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be embedded, and the tokens, requests and money it takes."""

    model: str
    entities: int
    """All that were looked at."""
    kinds: Mapping[str, int]
    """Of those, how many are to be embedded, and why."""
    texts: int
    tokens: int
    requests: int
    price: Price
    time: timedelta | None
    """At today's limits; None where nothing is limited."""
    assumptions: tuple[str, ...] = ()

    @property
    def usd(self) -> float | None:
        """What it costs; None where no price is known."""
        return self.price.usd(self.tokens)

    @property
    def cost(self) -> str:
        """The cost in words."""
        return "unknown, no price is known" if self.usd is None else Unit.USD.shown(self.usd)


@dataclass(frozen=True, slots=True)
class Planned:
    """An earlier plan, and what has been charged since."""

    at: datetime
    tokens: int
    usd: float | None
    charged_tokens: int
    charged_usd: float

    @property
    def percent(self) -> float:
        """The charged share of what was planned."""
        return 100 * self.charged_tokens / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What limits how fast texts can be embedded."""

    limits: RateLimits
    is_limited: bool = True

    def time_for(self, *, requests: int, tokens: int) -> timedelta | None:
        """How long it takes at least; None where nothing is limited."""
        if not self.is_limited:
            return None
        limits, budget = self.limits, self.limits.budget
        window = timedelta(milliseconds=limits.slice_ms + limits.margin_ms) + limits.interval
        times: list[timedelta] = []
        if limits.requests is not None:
            times.append(window * (requests / limits.requests))
        if limits.tokens is not None:
            times.append(window * (tokens / limits.tokens))
        for period, unit, allowed in budget.parts():
            if allowed is not None:
                amount = tokens if unit is Unit.TOKENS else budget.price.usd(tokens) or 0.0
                # What fits into the first day or month needs no second one.
                whole = int(amount / allowed) if amount > allowed else 0
                times.append(timedelta(days=DAYS[period]) * whole)
        return max(times, default=None)
