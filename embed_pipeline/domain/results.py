"""What the worker hands to the store, and what it hears back."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus, Lease, LeasedJob
from embed_pipeline.domain.pieces import Passage
from embed_pipeline.domain.vector import Vector

ENDED: Final = tuple(status for status in JobStatus if status.is_terminal)


@dataclass(frozen=True, slots=True)
class LeaseBatch:
    """The jobs a lease gave out; ``refusal`` says why a closed queue gave none.

    ``is_probe``: whoever asked is to find out whether the provider is back, with a harmless word.
    """

    jobs: tuple[LeasedJob, ...] = ()
    lock_until: datetime | None = None
    refusal: str | None = None
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """The result of a heartbeat; only ``held`` may be worked on."""

    held: tuple[Lease, ...] = ()
    cancelled: tuple[Lease, ...] = ()
    lost: tuple[Lease, ...] = ()
    settled: Mapping[Lease, str] = field(default_factory=dict)
    """Ended by a call under the lease itself, and how: they were not taken away."""
    lock_until: datetime | None = None


class EntityFate(StrEnum):
    """The state of the entity of a leased job."""

    CURRENT = "current"
    SUPERSEDED = "superseded"
    GONE = "gone"
    """There is none, or there are several that differ."""
    LONG = "long"
    """Its text is longer than was asked for; only its size was read."""
    FENCED = "fenced"
    """The lease is no longer current; the entity was not read."""


@dataclass(frozen=True, slots=True)
class LoadedEntity:
    """The text properties of an entity; empty unless it is current."""

    lease: Lease
    fate: EntityFate
    properties: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0
    """Characters of its text properties, as far as they are read."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A vector for a leased job; ``None`` removes the old one, for an entity without text."""

    lease: Lease
    vector: Vector | None
    text_hash: str
    tokens: int | None = None
    pieces: int = 1
    """Of the text, which was too long to be embedded whole."""
    passages: tuple[Passage, ...] = ()
    """The pieces with their vectors, where they are nodes."""


class CompletionOutcome(StrEnum):
    """What a completion did."""

    COMPLETED = "completed"
    FENCED = "fenced"
    """Another worker holds or ended the job; nothing was written."""
    SUPERSEDED = "superseded"
    """A newer version exists; the job is cancelled."""
    GONE = "gone"
    """There is no entity, or several that differ; the job is cancelled."""
    MOVED = "moved"
    """The text changed under the same version; the job is pending again, attempt refunded."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a leased job could not be embedded; ``is_pinned`` when bisecting found it guilty.

    ``is_outage`` when nothing at all could be embedded: the job is given back with its attempt.
    """

    lease: Lease
    category: ErrorCategory
    message: str
    stack: str = ""
    text_hash: str | None = None
    is_pinned: bool = False
    is_outage: bool = False


class FailureOutcome(StrEnum):
    """What a failure led to."""

    RETRY = "retry"
    FAILED = "failed"
    GIVEN_BACK = "given_back"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class RecoveredJob:
    """A job whose lease had expired, for the log and the operator."""

    job_id: str
    entity_uid: str
    former_owner: str | None
    last_heartbeat: datetime | None
    expired_at: datetime
    status: JobStatus
    attempts: int

    @property
    def line(self) -> str:
        """The log line about the recovery."""
        return (
            f"job={self.job_id} recovered from owner={self.former_owner} "
            f"last_heartbeat={self.last_heartbeat} now={self.status.value} attempts={self.attempts}"
        )


def tally_of(jobs: Iterable[RecoveredJob]) -> dict[str, Counter[JobStatus]]:
    """How many jobs of each former owner are in which state now."""
    tally: dict[str, Counter[JobStatus]] = {}
    for job in jobs:
        if job.former_owner is not None:
            tally.setdefault(job.former_owner, Counter())[job.status] += 1
    return tally


@dataclass(frozen=True, slots=True)
class BulkReport:
    """What a change by filter did, or would do (``is_preview``)."""

    count: int
    job_ids: tuple[str, ...]
    is_preview: bool
    counts: Mapping[JobStatus, int] = field(default_factory=dict)
    entity_uids: tuple[str, ...] = ()
    """Of the jobs in ``job_ids``, in a preview."""


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What the clean-up deleted, or would delete, and how."""

    deleted: int
    failed_batches: int
    used_apoc: bool
    is_dry_run: bool


@dataclass(frozen=True, slots=True)
class Cleanup:
    """What was deleted, or would be."""

    jobs: PurgeReport
    actions: int
    """Entries of the audit."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to delete."""
        return self.jobs.deleted > 0 or self.actions > 0


def retention_in_words(retention: Mapping[JobStatus, timedelta]) -> str:
    """The retention in words; once if it is the same for all states."""
    days = {status: f"{retention[status].days} days" for status in ENDED}
    if len(set(days.values())) == 1:
        return days[JobStatus.COMPLETED]
    return ", ".join(f"{number} ({status})" for status, number in days.items())


@dataclass(frozen=True, slots=True)
class Hit:
    """An entity and how near it is: 1 is the same direction, 0 the opposite."""

    uid: str
    type: str | None
    score: float
    text: str
    """What the entity's vector was made of, if unchanged since; a long one is cut."""
    sentence: str | None = None
    """The part of the text that is nearest to the question."""
    passage: str | None = None
    """The piece of the text that was found, where pieces are nodes."""
