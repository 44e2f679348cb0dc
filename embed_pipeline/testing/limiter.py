"""A rate limit in memory."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from embed_pipeline.domain.budget import corrected
from embed_pipeline.domain.holds import Allowance, Hold, Origin
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.domain.rate_window import (
    Grant,
    LimiterState,
    RateLimits,
    Window,
    followed,
    hold,
    hold_of,
    learnt,
    released,
    state_of,
    take,
)
from embed_pipeline.testing.clock import FakeClock


@dataclass
class FakeRateLimiter:
    """One limit for everybody in this process."""

    clock: FakeClock = field(default_factory=FakeClock)
    limits: RateLimits = field(default_factory=RateLimits)
    window: Window = field(default_factory=Window)

    async def acquire(self, *, tokens: int = 0) -> Grant:
        self._follow()
        self.window, grant = take(self.window, self.limits, now_ms=self._now_ms, tokens=tokens)
        return grant

    async def peek(self) -> Grant:
        self._follow()
        return take(self.window, self.limits, now_ms=self._now_ms)[1]

    async def hold(self, pause: timedelta, *, owner: str, said: str) -> Grant:
        self._follow()
        pause_ms, origin = pause // timedelta(milliseconds=1), Origin(DEFAULT_QUEUE, owner, said)
        self.window = hold(self.window, pause_ms=pause_ms, now_ms=self._now_ms, origin=origin)
        return take(self.window, self.limits, now_ms=self._now_ms)[1]

    async def learn(self, allowance: Allowance) -> None:
        self._follow()
        self.window = learnt(self.window, allowance, now_ms=self._now_ms)

    async def correct(self, *, counted: int, charged: int) -> None:
        self._follow()
        budget, spent = self.limits.budget, self.window.spending
        after = corrected(spent, budget, counted=counted, charged=charged)
        self.window = replace(self.window, spending=after)

    async def read(self) -> LimiterState:
        window = followed(self.window, self.limits, now_ms=self._now_ms)
        return state_of(window, self.limits, name="default", now_ms=self._now_ms)

    async def clear(self) -> Hold | None:
        self._follow()
        ended, self.window = hold_of(self.window, now_ms=self._now_ms), released(self.window)
        return ended

    def _follow(self) -> None:
        self.window = followed(self.window, self.limits, now_ms=self._now_ms)

    @property
    def _now_ms(self) -> int:
        return int(self.clock().timestamp() * 1000)
