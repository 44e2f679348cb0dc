"""Which jobs an operator means."""

from dataclasses import dataclass
from datetime import datetime

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus


@dataclass(frozen=True, slots=True)
class JobFilter:
    """All conditions must hold; ``None`` means that it does not matter.

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
