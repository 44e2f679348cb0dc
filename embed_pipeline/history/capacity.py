"""How long a backlog lasts: a model of two limits, measured on the drains of the past.

Jobs are completed as fast as the slower of two things allows: the rate limit, times the jobs that
one request brings, and the speed of a drain that does not wait. At its start a rested limiter lets
the requests of a whole interval through at once; after that they come evenly. In truth they come in
bursts, an interval apart, so a backlog may last up to an interval longer than predicted.

Left out are attempts that fail and their back-off, an open breaker or a pause, the tokens per
minute of the provider's account, the seconds until a run has started, and drains that run side by
side: they share the rate limit, so each of them looks slow alone.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Final

import pandas as pd

from embed_pipeline.domain.rate_window import RateLimits

FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
ARRIVED: Final = (
    "jobs",
    "deleted_completed_total",
    "deleted_failed_total",
    "deleted_cancelled_total",
    "revived_total",
    "reopened_total",
)
"""Figures whose sum rises by one with each job that is new, or wanted once more."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the queue can do with these limits.

    ``jobs_per_second`` is the speed of all drains together while none of them waits.
    """

    limits: RateLimits
    jobs_per_request: float
    jobs_per_second: float

    @property
    def limited_per_minute(self) -> float:
        """Jobs per minute that the rate limit allows.

        To be safe the limiter's own interval is longer than the one it was given: by 4 % of a
        minute, by a quarter of a second.
        """
        margin = timedelta(milliseconds=self.limits.slice_ms + self.limits.margin_ms)
        per_minute = timedelta(minutes=1) / (self.limits.interval + margin)
        return self.burst * per_minute

    @property
    def burst(self) -> float:
        """Jobs that may be sent at once; ``inf`` where nothing is limited."""
        requests = self.limits.requests
        return inf if requests is None else requests * self.jobs_per_request

    @property
    def per_minute(self) -> float:
        """Jobs per minute that can be kept up."""
        return min(self.limited_per_minute, 60 * self.jobs_per_second)

    def minutes_to_drain(self, backlog: float, *, arrivals_per_minute: float = 0.0) -> float:
        """Minutes until a backlog is gone while new jobs arrive; ``inf`` where it never is.

        Arrivals come evenly; what cannot be kept up counts as never, although the first burst may
        empty a short queue for a moment.
        """
        if backlog <= 0:
            return 0.0
        if self.per_minute <= arrivals_per_minute:
            return inf
        return max(
            backlog / (60 * self.jobs_per_second - arrivals_per_minute),
            max(0.0, backlog - self.burst) / (self.limited_per_minute - arrivals_per_minute),
        )


def measured(drains: pd.DataFrame, *, limits: RateLimits) -> Capacity | None:
    """The capacity that drains have shown, weighted; None if none completed a job.

    Args:
        drains: as ``history.drains`` gives them.
        limits: those of today; which ones held in the past is not recorded.
    """
    worked = _worked(drains)
    if worked.empty:
        return None
    jobs, requests, busy = worked.sum()[["completed", "requests", "busy_seconds"]]
    return Capacity(
        limits,
        # Texts that are known already need no request.
        jobs_per_request=jobs / requests if requests else inf,
        jobs_per_second=jobs / busy if busy else inf,
    )


def arrivals_per_minute(metrics: pd.DataFrame) -> float:
    """New jobs per minute over the whole time of the readings; 0 where there are less than two.

    Args:
        metrics: as ``history.queue_metrics`` gives them, not resampled.
    """
    if len(metrics) < 2:
        return 0.0
    steps = metrics.reindex(columns=list(ARRIVED)).fillna(0.0).sum(axis="columns").diff()
    minutes = (metrics.index[-1] - metrics.index[0]) / timedelta(minutes=1)
    # It falls only where jobs were deleted by hand, or after a new installation.
    return float(steps.clip(lower=0.0).sum()) / minutes


def sensitivity(
    model: Capacity,
    backlog: float,
    *,
    arrivals_per_minute: float = 0.0,
    factors: tuple[float, ...] = FACTORS,
) -> pd.DataFrame:
    """Minutes to drain when one input is multiplied by a factor and the others stay."""

    def minutes(changed: Capacity, arrivals: float = arrivals_per_minute) -> float:
        return changed.minutes_to_drain(backlog, arrivals_per_minute=arrivals)

    per_request, per_second = model.jobs_per_request, model.jobs_per_second
    rows = [
        {
            "rate_limit": minutes(replace(model, limits=_scaled(model.limits, factor))),
            "jobs_per_request": minutes(replace(model, jobs_per_request=factor * per_request)),
            "jobs_per_second": minutes(replace(model, jobs_per_second=factor * per_second)),
            "arrivals": minutes(model, factor * arrivals_per_minute),
        }
        for factor in factors
    ]
    return pd.DataFrame(rows, index=pd.Index(factors, name="factor"))


def compared(drains: pd.DataFrame, *, limits: RateLimits) -> pd.DataFrame:
    """Predicted and measured time of each drain; ``ratio`` above 1 is slower than predicted.

    A drain is predicted from its number of jobs and from the drains before it, never from itself,
    so the first has no prediction. Lingering is taken out of the measured time.
    """
    worked = _worked(drains)
    before = worked.cumsum().shift()
    predicted = [
        60 * Capacity(limits, per_request, per_second).minutes_to_drain(jobs)
        for jobs, per_request, per_second in zip(
            worked["completed"],
            before["completed"] / before["requests"],
            before["completed"] / before["busy_seconds"],
            strict=True,
        )
    ]
    frame = worked[["completed", "requests", "seconds"]].assign(
        predicted_seconds=pd.array(predicted, dtype=float)
    )
    return frame.assign(ratio=frame["seconds"] / frame["predicted_seconds"])


def _worked(drains: pd.DataFrame) -> pd.DataFrame:
    """The figures of drains that completed jobs, without their idle time at the end."""
    names = ["completed", "requests", "seconds", "seconds_waiting", "seconds_idle"]
    numbers = drains.reindex(columns=names).astype(float).fillna(0.0)
    numbers["seconds"] = (numbers["seconds"] - numbers.pop("seconds_idle")).clip(lower=0.0)
    numbers["busy_seconds"] = (numbers["seconds"] - numbers["seconds_waiting"]).clip(lower=0.0)
    return numbers[numbers["completed"] > 0]


def _scaled(limits: RateLimits, factor: float) -> RateLimits:
    if limits.requests is None:
        return limits
    return replace(limits, requests=max(1, round(factor * limits.requests)))
