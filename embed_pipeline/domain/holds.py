"""How long a provider may stop everybody who shares its rate limit, and who passed that on.

A provider that says 429 may say for how long. It is believed, but not for ever: ``Retry-After:
1000000000`` would stop every queue of the account for 31 years.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from embed_pipeline.domain.words import span

SCARCE: Final = 0.2
"""Of a limit. Where more is left, and enough for what a drain sends at once, nobody is told: the
shared limiter would be written twice for every request."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of one limit, and the time until it is whole again."""

    amount: int
    resets_in: timedelta
    limit: int | None = None

    def is_scarce(self, wanted: int) -> bool:
        """Whether other workers should know; also if the total is unknown."""
        is_little = self.limit is None or self.amount < SCARCE * self.limit
        return is_little or self.amount < wanted


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of requests and tokens, as far as the provider says."""

    requests: Left | None = None
    tokens: Left | None = None

    def is_scarce(self, *, requests: int, tokens: int) -> bool:
        """Whether other workers should know, where a drain sends so much at once."""
        wanted = (self.requests, requests), (self.tokens, tokens)
        return any(left is not None and left.is_scarce(most) for left, most in wanted)


LONGEST_HOLD: Final = timedelta(minutes=15)
"""As long as the breaker's longest pause: after it one request asks again."""
MAX_SAID: Final = 200
HOW_TO_END: Final = "'embed-pipeline limits clear' or the job clear_limits ends it"


def clamped(asked: timedelta) -> timedelta:
    """Cut a pause to what is granted; the only place that decides it."""
    return max(timedelta(0), min(asked, LONGEST_HOLD))


def pause_of(seconds: float) -> timedelta | None:
    """A number of seconds as a pause; ``None`` if it cannot be one."""
    if math.isnan(seconds) or seconds < 0:
        return None
    if seconds >= timedelta.max.total_seconds():
        return timedelta.max
    return timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Origin:
    """The worker that reported a pause."""

    queue: str
    owner: str
    said: str
    """What the provider answered: short, without key and texts."""


@dataclass(frozen=True, slots=True)
class Hold:
    """No request is granted before ``until``."""

    since: datetime
    until: datetime
    asked: timedelta
    """What the provider wanted."""
    origin: Origin | None = None
    """Unknown where a version wrote it that did not note that."""

    @property
    def is_clamped(self) -> bool:
        """The provider wanted more than it got."""
        return self.asked > LONGEST_HOLD

    def __str__(self) -> str:
        end = f"{self.until:%Y-%m-%d %H:%M:%S} UTC"
        if self.origin is None:
            return f"the provider is not asked before {end}; the reason was not noted{self._cut}"
        origin = self.origin
        said = f': "{origin.said}"' if origin.said else ""
        by = f"told {origin.owner} of queue {origin.queue} to wait"
        return f"the provider {by} until {end}{said}{self._cut}"

    @property
    def _cut(self) -> str:
        if not self.is_clamped:
            return ""
        return f" (it wanted {cut_of(self.asked)})"


def cut_of(asked: timedelta) -> str:
    """In words: how long a pause was asked for, and how long is granted."""
    wanted = "for ever" if asked == timedelta.max else span(asked)
    return f"{wanted}, cut to {span(LONGEST_HOLD)}"


@dataclass(frozen=True, slots=True)
class Rest:
    """What may be used of the provider's limit before ``until_ms``, when it is whole again."""

    amount: int
    until_ms: int

    def holds(self, now_ms: int) -> bool:
        """Whether it still applies; never for longer than a pause may last."""
        return now_ms < self.until_ms <= now_ms + LONGEST_HOLD // timedelta(milliseconds=1)

    def less(self, amount: int) -> "Rest":
        """The rest after so much was used."""
        return replace(self, amount=max(0, self.amount - amount))
