"""The figures an operator sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from embed_pipeline.domain.batch import Batch
from embed_pipeline.domain.breaker import Breaker, BreakerStatus, in_utc
from embed_pipeline.domain.budget import BudgetUse
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.holds import Hold
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.outlook import outlook, time_left

COUNTERS: Final = (
    "completed",
    "recoveries",
    "recovered",
    "exhausted",
    "fenced",
    "released",
    "retried",
    "given_back",
    "moved",
    "cancelled",
    "superseded",
    "revived",
    "reopened",
    "adopted",
    "heartbeats_failed",
    "requests",
    "requests_limited",
    "tokens",
    "cost_nano_usd",
    "cache_hits",
    "deleted_completed",
    "deleted_failed",
    "deleted_cancelled",
)
"""Events that leave no trace on a job, counted since the installation."""


WHO_ADOPTS: Final = "the next scan does it at the latest"
"""Puts jobs right that another program wrote or edited; a recovery looks at those in work only."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """Whether the queue gives out jobs, and if not, why."""

    breaker: Breaker
    is_paused: bool = False
    paused_by: str | None = None
    paused_since: datetime | None = None

    @property
    def closed(self) -> str | None:
        """Why no jobs are given out, in words; None if they are."""
        if self.is_paused:
            return f"the queue is paused since {in_utc(self.paused_since)} by {self.paused_by}"
        return None if self.breaker.status is BreakerStatus.CLOSED else str(self.breaker)


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """One reading of the queue."""

    at: datetime
    counts: Mapping[JobStatus, int]
    ready: int
    delayed: int
    due_retries: int
    suspects: int
    oldest_pending: timedelta | None
    expired_leases: int
    oldest_expired: timedelta | None
    without_lock: int
    window: timedelta
    completed_in_window: int
    failed_in_window: int
    cancelled_in_window: int
    attempts: Mapping[int, int]
    """How many attempts the jobs took that ended in the window."""
    categories: Mapping[ErrorCategory, int]
    """All failed jobs by category."""
    counters: Mapping[str, int]
    state: QueueState
    oldest_ended: timedelta | None = None
    """How long ago the first of the jobs ended that are still kept."""
    last_recovery: datetime | None = None
    """When expired leases were last looked for, whether there were any or not."""
    former_model: int = 0
    """Pending jobs of a model that the queue belonged to before; the scan ends them."""
    unadopted: int = 0
    """Jobs that another program wrote or edited, not adopted yet."""
    hold: Hold | None = None
    """The pause that the provider has asked for, of everybody who shares the rate limit."""
    budget: tuple[BudgetUse, ...] = ()
    """How each budget of the account stands that is set."""
    batches: tuple[Batch, ...] = ()
    """All that are known, oldest first."""

    @property
    def throughput_per_minute(self) -> float:
        """Completed jobs per minute in the window."""
        return self.completed_in_window / (self.window / timedelta(minutes=1))

    @property
    def hold_left(self) -> timedelta:
        """How long the provider may not be asked; zero if it has not asked for a pause."""
        return max(timedelta(0), self.hold.until - self.at) if self.hold else timedelta(0)

    @property
    def in_batches(self) -> int:
        """Jobs that were sent to the provider as batches, and are not settled."""
        return sum(batch.jobs for batch in self.batches if batch.is_at_provider)

    @property
    def batch_left(self) -> timedelta | None:
        """Until the first of these batches expires; None if there is none, or none says when."""
        ends = [b.expires_at for b in self.batches if b.is_at_provider and b.expires_at]
        return max(timedelta(0), min(ends) - self.at) if ends else None

    @property
    def left(self) -> int:
        """Jobs that are not finished."""
        return self.counts[JobStatus.PENDING] + self.counts[JobStatus.PROCESSING]

    @property
    def eta(self) -> timedelta | None:
        """When they are done at the pace of the window; None if unknown."""
        return time_left(self.left, self.throughput_per_minute, hold=self.hold_left)

    @property
    def outlook(self) -> str | None:
        """The ETA in words."""
        return outlook(self.left, self.throughput_per_minute, hold=self.hold_left)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a drain for one model would find; costs the same for any length of the queue."""

    at: datetime
    due: int
    """Jobs of the model that could be leased now, counted up to a limit."""
    is_more: bool
    """There are more than ``due``."""
    pending: int
    """Of all models, due or not."""
    processing: int
    """Of all models."""
    next_due: datetime | None
    """When the next job of the model is to be tried again that is not due yet."""
    state: QueueState
    refusal: str | None = None
    """Why these settings must not be used on the queue: it belongs to another model."""
    oldest_due: timedelta | None = None
    """How long ago the first of the due jobs could have been leased."""
