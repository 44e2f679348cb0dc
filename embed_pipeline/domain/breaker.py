"""Stops all leases while nothing can work, and finds out when it can again.

::

    closed ──open──▶ open ──after the pause──▶ half-open: one probe ──success──▶ closed
                      ▲                                      └──failure──▶ open, twice the pause

A fault that a person must mend (a refused key, an empty account) is probed with one job. A provider
that is down comes back by itself, so it is asked sooner and more often, and for a harmless word: no
job is at stake.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

FIRST_PAUSE: Final = timedelta(minutes=1)
LONGEST_PAUSE: Final = timedelta(minutes=15)
FIRST_PAUSE_OF_OUTAGE: Final = timedelta(seconds=10)
LONGEST_PAUSE_OF_OUTAGE: Final = timedelta(minutes=5)
"""Of an hour that a provider is down, 16 probes; of a minute, three."""
JITTER: Final = 0.1
"""A probe comes up to this part of its pause sooner: queues that share a provider, and opened their
breakers in the same moment, do not all ask it in the same moment again."""
PROBE_LASTS: Final = timedelta(minutes=2)
"""A probe has its answer by then, or its worker is gone: the next one may ask."""


class BreakerStatus(StrEnum):
    """Whether jobs are leased."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """One job, or a harmless word, is out as a probe."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state that all workers share; ``since`` is when the first failure opened it."""

    status: BreakerStatus = BreakerStatus.CLOSED
    reason: str | None = None
    since: datetime | None = None
    probe_at: datetime | None = None
    """When the next probe may be made; while half-open, when another one may."""
    failures: int = 0
    is_outage: bool = False
    """The provider is down, for all that is known; nothing is to be mended here."""

    def is_probe_due(self, now: datetime) -> bool:
        if self.status is BreakerStatus.CLOSED:
            return False
        return self.probe_at is None or now >= self.probe_at

    def __str__(self) -> str:
        return self.at(None)

    def at(self, now: datetime | None) -> str:
        """What is the matter, in words; a try whose time has come is left to the next drain."""
        if self.status is BreakerStatus.CLOSED:
            return "breaker closed"
        if not self.is_outage:
            return f"breaker open: {self.reason}"
        is_due = now is not None and self.is_probe_due(now)
        tried = "tried again by the next drain" if is_due else self.next_try
        return f"provider down since {in_utc(self.since)}, {tried}: {self.reason}"

    @property
    def next_try(self) -> str:
        """When the provider is asked again, in words."""
        if self.status is BreakerStatus.HALF_OPEN:
            return "being tried now"
        return f"next try at {in_utc(self.probe_at)}"


def pause_after(failures: int, *, is_outage: bool = False) -> timedelta:
    """How long the breaker stays open after so many failures in a row."""
    first, longest = FIRST_PAUSE, LONGEST_PAUSE
    if is_outage:
        first, longest = FIRST_PAUSE_OF_OUTAGE, LONGEST_PAUSE_OF_OUTAGE
    return min(first * 2 ** min(max(failures - 1, 0), 10), longest)


def opened(
    breaker: Breaker, reason: str, now: datetime, *, is_outage: bool, roll: float
) -> Breaker:
    """Stop all leases; workers that fail together count as one failure.

    A failure when the next try is due was that try. ``roll`` is a number from 0 to 1.
    """
    is_other = breaker.is_outage is not is_outage
    if breaker.status is BreakerStatus.CLOSED or is_other:
        breaker = Breaker(since=now)
    is_news = breaker.status is not BreakerStatus.OPEN or breaker.is_probe_due(now)
    failures = breaker.failures + is_news
    pause = pause_after(failures, is_outage=is_outage) * (1 - JITTER * roll)
    return Breaker(
        status=BreakerStatus.OPEN,
        reason=reason,
        since=breaker.since or now,
        probe_at=now + pause if is_news else breaker.probe_at,
        failures=failures,
        is_outage=is_outage,
    )


def allowed_jobs(breaker: Breaker, now: datetime, limit: int) -> int:
    """How many jobs a lease may give out: all, one as a probe, or none."""
    if breaker.status is BreakerStatus.CLOSED:
        return limit
    is_job_tried = breaker.is_probe_due(now) and not breaker.is_outage
    return min(1, limit) if is_job_tried else 0


def in_utc(moment: datetime | None) -> str:
    """A moment as the messages about a queue write it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "an unknown time"
