"""A sliding window that counts requests and tokens.

The window is cut into slices, and a slice is forgotten only when all of it is older than the
interval *plus a margin*. So no interval ever holds more than the limit, not even when requests
reach the provider a margin later than they were granted; the price is four per cent of the rate for
an interval of a minute, and a fifth for one of a second. A token bucket would be shorter, but lets
twice its limit through an interval: full at its start, refilled until its end.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from embed_pipeline.domain.budget import (
    NO_BUDGET,
    NOTHING_SPENT,
    Budget,
    BudgetUse,
    Spending,
    rolled,
)
from embed_pipeline.domain.holds import Allowance, Hold, Left, Origin, Rest, clamped
from embed_pipeline.domain.words import exactly

SLICES: Final = 50
_LONGEST_MARGIN_MS: Final = 1_000
_MOST_MS: Final = timedelta.max // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The provider's limits per interval; ``None`` is no limit."""

    requests: int | None = 20
    interval: timedelta = timedelta(milliseconds=60_000)
    tokens: int | None = None
    budget: Budget = NO_BUDGET

    def __str__(self) -> str:
        limits = {"requests": self.requests, "tokens": self.tokens}
        said = " and ".join(f"{n} {what}" for what, n in limits.items() if n is not None)
        return f"{said} in {exactly(self.interval)}" if said else "no limit"

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
    asked_ms: int = 0
    """How long a pause the provider wanted then."""
    origin: Origin | None = None
    left_requests: Rest | None = None
    """What the provider says is left; the same for tokens."""
    left_tokens: Rest | None = None
    spending: Spending = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a wish: ``wait`` is zero when it was granted, for a request sent soon.

    ``hold`` says who is to blame for a wait that the provider has asked for, ``budget`` that it is
    used.
    """

    wait: timedelta
    good_for: timedelta = timedelta(0)
    hold: Hold | None = None
    budget: BudgetUse | None = None

    @property
    def is_granted(self) -> bool:
        """Whether the request may be sent now."""
        return not self.wait


@dataclass(frozen=True, slots=True)
class LimiterState:
    """How a limiter stands at one time, for people."""

    name: str
    at: datetime
    limits: RateLimits
    requests: int
    """Granted in the window that ends now; the same for tokens."""
    tokens: int
    wait: timedelta
    """Until the next request is granted; zero if it would be now."""
    hold: Hold | None
    budget: tuple[BudgetUse, ...] = ()
    """How each budget stands that is set."""


def hold(window: Window, *, pause_ms: int, now_ms: int, origin: Origin | None = None) -> Window:
    """Grant nothing for this long; a longer pause decided before stays.

    Invariant: no pause is longer than ``clamped`` grants.
    """
    granted_ms = _ms(clamped(_duration(pause_ms)))
    if window.not_before_ms >= now_ms + granted_ms:
        return window
    return replace(
        window,
        not_before_ms=now_ms + granted_ms,
        held_at_ms=now_ms,
        asked_ms=min(pause_ms, _MOST_MS),
        origin=origin,
    )


def learnt(window: Window, allowance: Allowance, *, now_ms: int) -> Window:
    """Remember what the provider says is left.

    Answers come in any order, and what was granted since is not in them: while an earlier word
    holds, the smaller amount and the later end do.
    """
    return replace(
        window,
        left_requests=_smaller(window.left_requests, allowance.requests, now_ms),
        left_tokens=_smaller(window.left_tokens, allowance.tokens, now_ms),
    )


def _smaller(known: Rest | None, said: Left | None, now_ms: int) -> Rest | None:
    known = known if known and known.holds(now_ms) else None
    if said is None:
        return known
    new = Rest(said.amount, now_ms + _ms(clamped(said.resets_in)))
    if known is None:
        return new
    return Rest(min(known.amount, new.amount), max(known.until_ms, new.until_ms))


def released(window: Window) -> Window:
    """End a pause; what was granted still counts."""
    return replace(
        window,
        not_before_ms=0,
        held_at_ms=0,
        asked_ms=0,
        origin=None,
        left_requests=None,
        left_tokens=None,
    )


def hold_of(window: Window, *, now_ms: int) -> Hold | None:
    """The current pause; the window must be ``followed``."""
    if window.not_before_ms <= now_ms:
        return None
    return Hold(
        since=_moment(window.held_at_ms),
        until=_moment(window.not_before_ms),
        asked=_duration(window.asked_ms),
        origin=window.origin,
    )


def state_of(window: Window, limits: RateLimits, *, name: str, now_ms: int) -> LimiterState:
    """Read a window; it must be ``followed``."""
    alive = [part for part in window.slices if _forgotten_at(part, limits) > now_ms]
    return LimiterState(
        name=name,
        at=_moment(now_ms),
        limits=limits,
        requests=sum(part.requests for part in alive),
        tokens=sum(part.tokens for part in alive),
        wait=take(window, limits, now_ms=now_ms)[1].wait,
        hold=hold_of(window, now_ms=now_ms),
        budget=limits.budget.uses(window.spending),
    )


def followed(window: Window, limits: RateLimits, *, now_ms: int) -> Window:
    """Follow a clock that was set back: what lies ahead counts as if it were now.

    So no interval gets more than the limit, and nobody waits longer than a whole interval (or
    pause) from now. A pause that nobody would be granted, because another version or a hand wrote
    it, is cut to one that is. The result must be kept, or the wait begins anew with every look.
    """
    current = now_ms - now_ms % limits.slice_ms
    ahead = [part for part in window.slices if part.start_ms > current]
    window = replace(window, spending=rolled(window.spending, now_ms=now_ms))
    if window.not_before_ms > now_ms:
        window = _believable(window, now_ms=now_ms)
    if not ahead:
        return window
    past = window.slices[: -len(ahead)]
    merged = Slice(current, sum(s.requests for s in ahead), sum(s.tokens for s in ahead))
    return replace(window, slices=(*past, merged))


def _believable(window: Window, *, now_ms: int) -> Window:
    pause_ms = window.not_before_ms - window.held_at_ms
    held_at_ms = min(window.held_at_ms, now_ms)
    return replace(
        window,
        not_before_ms=held_at_ms + _ms(clamped(_duration(pause_ms))),
        held_at_ms=held_at_ms,
        asked_ms=min(max(window.asked_ms, pause_ms), _MOST_MS),
    )


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
        wait = _duration(window.not_before_ms - now_ms)
        return replace(window, slices=alive), Grant(wait, hold=hold_of(window, now_ms=now_ms))
    if (used := limits.budget.spent(window.spending)) is not None:
        wait = used.until - _moment(now_ms)
        return replace(window, slices=alive), Grant(wait, budget=used)
    requests = sum(s.requests for s in alive)
    spent = sum(s.tokens for s in alive)
    free_at = now_ms
    for oldest in alive:
        if not _is_full(requests, spent, tokens, limits):
            break
        requests, spent = requests - oldest.requests, spent - oldest.tokens
        free_at = _forgotten_at(oldest, limits)
    for rest, wanted in ((window.left_requests, 1), (window.left_tokens, tokens)):
        if rest and rest.holds(now_ms) and wanted > rest.amount:
            free_at = max(free_at, rest.until_ms)
    if free_at > now_ms:
        return replace(window, slices=alive), Grant(_duration(free_at - now_ms))
    window = replace(
        window,
        left_requests=window.left_requests and window.left_requests.less(1),
        left_tokens=window.left_tokens and window.left_tokens.less(tokens),
        spending=window.spending.plus(tokens, limits.budget.price.nano_usd(tokens)),
    )
    granted = Grant(timedelta(0), timedelta(milliseconds=limits.margin_ms))
    if alive and alive[-1].start_ms == current:
        last = alive[-1]
        grown = replace(last, requests=last.requests + 1, tokens=last.tokens + tokens)
        return replace(window, slices=(*alive[:-1], grown)), granted
    return replace(window, slices=(*alive, Slice(current, 1, tokens))), granted


def _is_full(requests: int, spent: int, tokens: int, limits: RateLimits) -> bool:
    if limits.requests is not None and requests >= limits.requests:
        return True
    return limits.tokens is not None and spent > 0 and spent + tokens > limits.tokens


def _forgotten_at(part: Slice, limits: RateLimits) -> int:
    return part.start_ms + limits.slice_ms + limits.margin_ms + _ms(limits.interval)


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=max(0, min(milliseconds, _MOST_MS)))


def _moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + _duration(milliseconds)
