"""A sliding window that counts requests and tokens.

The window is cut into slices, and a slice is forgotten only when all of it is older than the
interval *plus a margin*. So no interval ever holds more than the limit, not even when requests
reach the provider a margin later than they were granted; the price is four per cent of the rate for
an interval of a minute, and a fifth for one of a second. A token bucket would be shorter, but lets
twice its limit through an interval: full at its start, refilled until its end.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

SLICES: Final = 50
_LONGEST_MARGIN_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What the provider allows: requests per interval, and tokens per interval if set."""

    requests: int = 20
    interval: timedelta = timedelta(milliseconds=60_000)
    tokens: int | None = None

    @property
    def slice_ms(self) -> int:
        """The length of one slice, rounded up so that the window is never shorter."""
        return max(1, -(-_ms(self.interval) // SLICES))

    @property
    def margin_ms(self) -> int:
        """How long after its grant a request may still be sent: a second, or what is usual."""
        return max(self.slice_ms, min(_ms(self.interval) // 4, _LONGEST_MARGIN_MS))


@dataclass(frozen=True, slots=True)
class Slice:
    """What was granted in one slice that began at ``start_ms``."""

    start_ms: int
    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """All slices that still count, oldest first, and a time before which nothing is granted."""

    slices: tuple[Slice, ...] = ()
    not_before_ms: int = 0
    held_at_ms: int = 0
    """When ``not_before_ms`` was decided."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a wish: ``wait`` is zero when it was granted, for a request sent soon."""

    wait: timedelta
    good_for: timedelta = timedelta(0)

    @property
    def is_granted(self) -> bool:
        """The request may be sent now."""
        return not self.wait


def hold(window: Window, *, pause_ms: int, now_ms: int) -> Window:
    """Grant nothing for so long; a longer pause that was decided before stays."""
    if window.not_before_ms >= now_ms + pause_ms:
        return window
    return replace(window, not_before_ms=now_ms + pause_ms, held_at_ms=now_ms)


def followed(window: Window, limits: RateLimits, *, now_ms: int) -> Window:
    """Go along with a clock that was set back: what lies ahead counts as if it were now.

    So no interval gets more than the limit, and nobody waits longer than a whole interval (or
    pause) from now. The result must be kept, or the wait begins anew with every look.
    """
    current = now_ms - now_ms % limits.slice_ms
    ahead = [part for part in window.slices if part.start_ms > current]
    if window.held_at_ms > now_ms:
        pause = window.not_before_ms - window.held_at_ms
        window = replace(window, not_before_ms=now_ms + pause, held_at_ms=now_ms)
    if not ahead:
        return window
    past = window.slices[: -len(ahead)]
    merged = Slice(current, sum(s.requests for s in ahead), sum(s.tokens for s in ahead))
    return replace(window, slices=(*past, merged))


def take(
    window: Window, limits: RateLimits, *, now_ms: int, tokens: int = 0
) -> tuple[Window, Grant]:
    """Grant one request with so many tokens, or say how long to wait; the window is ``followed``.

    A request with more tokens than the limit allows at all is granted when nothing else is in the
    window; otherwise it would wait for ever.
    """
    current = now_ms - now_ms % limits.slice_ms
    alive = tuple(s for s in window.slices if _forgotten_at(s, limits) > now_ms)
    if window.not_before_ms > now_ms:
        return replace(window, slices=alive), _wait(window.not_before_ms - now_ms)
    requests = sum(s.requests for s in alive)
    spent = sum(s.tokens for s in alive)
    free_at = now_ms
    for oldest in alive:
        if not _is_full(requests, spent, tokens, limits):
            break
        requests, spent = requests - oldest.requests, spent - oldest.tokens
        free_at = _forgotten_at(oldest, limits)
    if free_at > now_ms:
        return replace(window, slices=alive), _wait(free_at - now_ms)
    granted = Grant(timedelta(0), timedelta(milliseconds=limits.margin_ms))
    if alive and alive[-1].start_ms == current:
        last = alive[-1]
        grown = replace(last, requests=last.requests + 1, tokens=last.tokens + tokens)
        return replace(window, slices=(*alive[:-1], grown)), granted
    return replace(window, slices=(*alive, Slice(current, 1, tokens))), granted


def _is_full(requests: int, spent: int, tokens: int, limits: RateLimits) -> bool:
    if requests >= limits.requests:
        return True
    return limits.tokens is not None and spent > 0 and spent + tokens > limits.tokens


def _forgotten_at(part: Slice, limits: RateLimits) -> int:
    return part.start_ms + limits.slice_ms + limits.margin_ms + _ms(limits.interval)


def _wait(milliseconds: int) -> Grant:
    return Grant(timedelta(milliseconds=milliseconds))


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
