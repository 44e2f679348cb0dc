"""What it takes to embed everything that waits for it: told before anybody pays."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from embed_pipeline.domain.budget import Period, Unit
from embed_pipeline.domain.embedding import RequestLimits, TextSize
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
    pieces: int = 0
    """Inputs of requests: more than texts where some are in pieces."""
    _inputs: int = 0
    _tokens: int = 0
    _characters: int = 0

    def add(self, sizes: Iterable[TextSize]) -> None:
        """Count texts of these sizes; one without any inputs is not sent."""
        most = self.limits
        for size in sizes:
            if size.inputs == 0:
                continue
            is_full = (
                self._inputs + size.inputs > most.inputs
                or self._tokens + size.tokens > most.tokens
                or self._characters + size.characters > most.characters
            )
            if self._inputs == 0 or is_full:
                # One that is too much for a request takes several.
                self.requests += max(
                    -(-size.inputs // most.inputs),
                    -(-size.tokens // most.tokens),
                    -(-size.characters // most.characters),
                )
                self._inputs = self._tokens = self._characters = 0
            self._inputs += size.inputs
            self._tokens += size.tokens
            self._characters += size.characters
            self.texts += 1
            self.tokens += size.tokens
            self.pieces += size.inputs


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
    pieces: int = 0
    """What is sent for the texts: more than they are, where some are in pieces."""

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
