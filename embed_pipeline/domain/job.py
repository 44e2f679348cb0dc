"""Jobs, leases, and the words for their states."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from embed_pipeline.domain.errors import ErrorCategory, InvalidJobError
from embed_pipeline.domain.keys import FIRST_VERSION, MAX_KEY_LENGTH, whole_number

LONGEST_LEASE: Final = timedelta(hours=1)
"""A dead worker's jobs wait so long at most; heartbeats make longer ones needless."""
DEFAULT_MAX_ATTEMPTS: Final = 3
PRIORITY_RANGE: Final = range(-1_000_000, 1_000_001)


class JobStatus(StrEnum):
    """Where a job stands; each state says who moves the job on."""

    PENDING = "pending"
    """Waits for a worker's lease, from ``run_after`` on if that is set."""
    PROCESSING = "processing"
    """A worker holds the lease; after ``lock_until`` recovery may take it away."""
    COMPLETED = "completed"
    """The vector is stored; only a change of the text opens the job again."""
    FAILED = "failed"
    """Given up; an operator's retry or a change of the text opens the job again."""
    CANCELLED = "cancelled"
    """Stopped by an operator, or nothing left to embed; may be opened again."""

    @property
    def is_terminal(self) -> bool:
        """Nothing happens by itself any more; the retention runs."""
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was read; the database may have changed since."""

    id: str
    entity_uid: str
    model: str
    version: int
    status: JobStatus
    priority: int
    attempts: int
    max_attempts: int
    fence: int
    created_at: datetime
    queued_at: datetime
    run_after: datetime | None = None
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    processed_at: datetime | None = None
    lock_owner: str | None = None
    lock_until: datetime | None = None
    last_owner: str | None = None
    expiries: int = 0
    error: str | None = None
    error_category: ErrorCategory | None = None
    error_stack: str | None = None
    error_history: tuple[str, ...] = ()
    cancelled_by: str | None = None
    tokens: int | None = None
    pieces: int | None = None
    """In how many the text was embedded, where it was too long for one."""
    text_hash: str | None = None

    @property
    def run_id(self) -> str | None:
        """The run that holds the job, or held it last."""
        owner = self.lock_owner or self.last_owner
        return run_id_of(owner) if owner else None

    @property
    def is_suspect(self) -> bool:
        """Its lease has expired before: it may have killed its worker, so it is kept apart."""
        return self.expiries > 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write about a job; ``fence`` rises with every lease of that job.

    Expiry does not end it, recovery does: until then the holder may still extend or complete.
    """

    job_id: str
    entity_uid: str
    model: str
    version: int
    owner: str
    fence: int

    def __hash__(self) -> int:
        """Hash only what identifies a lease: a worker looks each of its leases up ten times."""
        return hash((self.job_id, self.fence))


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """The right to work on a job, and what its worker has to know about it."""

    lease: Lease
    attempts: int
    """This one included."""
    max_attempts: int
    is_suspect: bool = False
    """See ``Job.is_suspect``."""

    @property
    def is_last_attempt(self) -> bool:
        """A failure of this attempt is final."""
        return self.attempts >= self.max_attempts


@dataclass(frozen=True, slots=True)
class NewJob:
    """A request to embed one version of an entity.

    ``text_hash`` is that of the rendered text, where the caller has rendered it. ``is_lost`` opens
    a finished job again although its text is the same: its vector is gone. ``force`` does so too,
    and the provider is asked again, even if the graph has a vector of the text.
    One with a ``delay`` is put off: it waits so long, and a wish without one brings it forward.
    A key or version that is a whole number may come as a float.
    """

    entity_uid: str
    model: str
    version: int = FIRST_VERSION
    priority: int = 0
    text_hash: str | None = None
    force: bool = False
    is_lost: bool = False
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        # To Neo4j 1, 1.0, '1' and true are four keys, and so four jobs.
        if (uid := whole_number(self.entity_uid)) is not None:
            object.__setattr__(self, "entity_uid", str(uid))
        if (version := whole_number(self.version)) is not None:
            object.__setattr__(self, "version", version)
        for name in ("entity_uid", "model"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InvalidJobError(f"{name} must be a text that is not empty")
            if len(value) > MAX_KEY_LENGTH:
                raise InvalidJobError(
                    f"{name} has {len(value)} characters; at most {MAX_KEY_LENGTH} are allowed"
                )
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise InvalidJobError(
                    f"{name} holds half a character (a lone surrogate); no database can store that"
                )
        if type(self.version) is not int or self.version < 0:
            raise InvalidJobError("version must be a whole number that is not negative")
        if type(self.priority) is not int or self.priority not in PRIORITY_RANGE:
            raise InvalidJobError("priority must be a whole number between -1000000 and 1000000")

    @property
    def key(self) -> tuple[str, str, int]:
        """The key that is unique in the database."""
        return (self.entity_uid, self.model, self.version)


def run_id_of(owner: str) -> str:
    """The run id in an owner's name; the rest tells steps, machines and tries apart."""
    return owner.partition("/")[0]


def is_holder(owner: str, holders: Iterable[str]) -> bool:
    """Whether an owner, or any owner of a run, is among the current holders."""
    return any(holder == owner or holder.startswith(f"{owner}/") for holder in holders)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """All conditions must hold; ``None`` is no condition.

    ``owner`` is a whole owner or a run id, ``ended_before`` and ``created_before`` are times of the
    database server.
    """

    ids: tuple[str, ...] | None = None
    statuses: frozenset[JobStatus] | None = None
    model: str | None = None
    entity_uids: tuple[str, ...] | None = None
    categories: frozenset[ErrorCategory] | None = None
    owner: str | None = None
    created_before: datetime | None = None
    ended_before: datetime | None = None
    has_lock: bool | None = None
    """False finds jobs in processing without an expiry, which no part of this program writes."""
