"""Stops all leases while nothing can work, and finds out when it can again.

::

    closed ──open──▶ open ──after the pause──▶ half-open: one job ──success──▶ closed
                      ▲                                    └──failure──▶ open, twice the pause
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

FIRST_PAUSE: Final = timedelta(minutes=1)
LONGEST_PAUSE: Final = timedelta(minutes=15)


class BreakerStatus(StrEnum):
    """Whether jobs are leased."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """One job is out as a probe."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state that all workers share; ``since`` is when the first failure opened it."""

    status: BreakerStatus = BreakerStatus.CLOSED
    reason: str | None = None
    since: datetime | None = None
    probe_at: datetime | None = None
    """When one job may be tried; while half-open, when the next one may."""
    failures: int = 0


def pause_after(failures: int) -> timedelta:
    """How long the breaker stays open after so many failures in a row."""
    return min(FIRST_PAUSE * 2 ** min(max(failures - 1, 0), 10), LONGEST_PAUSE)


def allowed_jobs(breaker: Breaker, now: datetime, limit: int) -> int:
    """How many jobs a lease may give out: all, one as a probe, or none."""
    if breaker.status is BreakerStatus.CLOSED:
        return limit
    is_due = breaker.probe_at is None or now >= breaker.probe_at
    return min(1, limit) if is_due else 0
