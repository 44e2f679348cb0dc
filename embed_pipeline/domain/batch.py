"""Batches: jobs that a provider embeds within a day for half the price.

::

    preparing ──▶ creating ──▶ submitted ──▶ collected ──▶ (gone)
        └────────────┼── refused ──▶ (gone, after a while)
                     └── abandoned ──▶ (gone, after a day)

The leases belong to the batch, not to its maker: they last until the provider must have
answered, and any process may collect. Whoever works on a batch holds it by a short lease of its
own. What stands at the provider is found again by its metadata, so no crash pays twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from embed_pipeline.domain.errors import EmbeddingError
from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.vector import Vector
from embed_pipeline.domain.words import span

OWNER: Final = "batch"
"""What the owner of a batch's leases begins with, where that of others has a run."""
LONGEST_BATCH: Final = timedelta(hours=30)
"""No lease of a batch lasts longer: the window of the provider is a day."""
AFTER_WINDOW: Final = timedelta(hours=2)
"""Leases outlast the provider's window by this, so that there is time to collect."""
WHILE_MADE: Final = timedelta(minutes=15)
"""The leases of a batch that the provider does not have yet."""
TURN: Final = timedelta(minutes=2)
"""How long a worker holds a batch without a sign of life."""
LOOK_AGAIN: Final = timedelta(minutes=5)
"""The list of a provider may lag: what it does not show is looked for again after this."""
LOOK_FOR_STRAYS: Final = timedelta(hours=1)
"""Between two looks for a batch whose jobs were given back: its maker may have slept."""
REFUSED_FOR: Final = timedelta(minutes=15)
"""After a refusal ordinary drains do the work for so long."""
MOST_LINES: Final = 50_000
MOST_BYTES: Final = 150_000_000
"""The provider takes 200 MB; the last page may be large."""
HALF: Final = 0.5
"""What a token costs in a batch; no list of prices has it."""
GIVEN_UP: Final = frozenset({"batch_expired", "batch_cancelled"})
"""Codes of lines that were never tried."""
KEY: Final = "embed_pipeline_batch"
"""The field of the metadata by which a batch is found again."""


class BatchStatus(StrEnum):
    """The progress of a batch; the next worker continues from there."""

    PREPARING = "preparing"
    """Jobs are leased and a file is made; the provider has no batch."""
    CREATING = "creating"
    """The provider was asked, or is about to be: look for the batch before anything is repeated."""
    SUBMITTED = "submitted"
    COLLECTED = "collected"
    """Every line was judged; what is left is to remove the files."""
    REFUSED = "refused"
    """The provider wanted none of it; the jobs are given back, no other batch is made yet."""
    ABANDONED = "abandoned"
    """The provider did not show it, so the jobs are given back; it is no longer needed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it was read."""

    id: str
    model: str
    status: BatchStatus
    created_at: datetime
    jobs: int = 0
    tokens: int = 0
    """Counted here, before it was sent."""
    input_file: str | None = None
    provider_id: str | None = None
    provider_status: str | None = None
    output_file: str | None = None
    error_file: str | None = None
    done: int = 0
    expires_at: datetime | None = None
    missed_at: datetime | None = None
    """When the provider first did not show it."""
    polled_at: datetime | None = None
    error: str | None = None
    until: datetime | None = None
    """Until when a worker holds it."""

    @property
    def is_at_provider(self) -> bool:
        """Whether the provider has it, or may have it."""
        return self.status in (BatchStatus.CREATING, BatchStatus.SUBMITTED)

    @property
    def owner(self) -> str:
        """The ``lock_owner`` of its jobs."""
        return owner_of_batch(self.id)

    def line(self, now: datetime) -> str:
        """Its state, in words."""
        jobs = f"{self.jobs} jobs"
        if self.status is BatchStatus.REFUSED:
            return f"batch {self.id} was refused: {self.error}"
        if self.status is BatchStatus.ABANDONED:
            return (
                f"batch {self.id} is given up, its jobs are given back; should it turn up at the "
                "provider, it is cancelled"
            )
        if self.status is not BatchStatus.SUBMITTED:
            return f"batch {self.id} with {jobs} is {self.status}"
        left = "" if self.expires_at is None else f", expires in {span(self.expires_at - now)}"
        state = (self.provider_status or "submitted").replace("_", " ")
        return f"batch {self.id} with {jobs} is {state}: {self.done} done{left}"

    def figures(self, now: datetime) -> dict[str, Any]:
        """The same for programs."""
        left = None if self.expires_at is None else (self.expires_at - now).total_seconds()
        return {
            "id": self.id,
            "status": self.status.value,
            "provider_status": self.provider_status,
            "jobs": self.jobs,
            "done": self.done,
            "expires_in_seconds": left,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class ProviderBatch:
    """A batch as the provider reports it."""

    id: str
    status: str
    done: int = 0
    failed: int = 0
    output_file: str | None = None
    error_file: str | None = None
    expires_at: datetime | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether its state is final."""
        return self.status in {"completed", "failed", "expired", "cancelled"}


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """One line of the output; an error that does not name the text is not the job's fault."""

    custom_id: str
    vector: Vector | None = None
    tokens: int | None = None
    error: EmbeddingError | None = None
    is_untried: bool = False
    refusal: str | None = None
    """Status and codes, if the provider has refused the line or could not do it."""


@dataclass(frozen=True, slots=True)
class SentJob:
    """What was sent for a job, as the store recorded it."""

    lease: Lease
    text_hash: str
    tokens: int


class AnswerCutError(Exception):
    """An answer was truncated; reading it again costs nothing."""


class BatchRefusedError(Exception):
    """The provider has refused, and has certainly not created anything."""


def paid_for(batches: Sequence[Batch]) -> str | None:
    """Which batches the provider works on, in words; None if there are none."""
    found = [batch for batch in batches if batch.is_at_provider]
    if not found:
        return None
    jobs = sum(batch.jobs for batch in found)
    return f"{jobs} of its jobs are in batches at the provider, which are paid for; wait for them"


def owner_of_batch(id_: str) -> str:
    """The ``lock_owner`` of the jobs of a batch."""
    return f"{OWNER}/{id_}"


def is_batch(owner: str | None) -> bool:
    """Whether these are leases of a batch: if they expire, no worker died of their jobs."""
    return (owner or "").startswith(f"{OWNER}/")


def custom_id(lease: Lease) -> str:
    """The ``custom_id`` of a line: job and fence."""
    return f"{lease.job_id}/{lease.fence}"


def held_until(expires_at: datetime | None, now: datetime) -> datetime:
    """When the leases of a batch end that the provider answers by ``expires_at``."""
    latest = now + LONGEST_BATCH
    return latest if expires_at is None else min(latest, expires_at + AFTER_WINDOW)
