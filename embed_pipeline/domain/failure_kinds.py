"""Failed jobs by kind: messages that differ only in numbers, ids and names are one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from embed_pipeline.domain.errors import ErrorCategory, fingerprint
from embed_pipeline.domain.job import Job


@dataclass(frozen=True, slots=True)
class FailureKind:
    """How many jobs failed this way; message, entity and job are those of the latest."""

    category: ErrorCategory
    message: str
    entity: str
    job: str
    count: int
    last: datetime


def kinds_of(jobs: Iterable[Job]) -> list[FailureKind]:
    """The kinds of failed jobs, the most frequent first."""
    found: dict[tuple[ErrorCategory, str], list[Job]] = {}
    for job in jobs:
        category = job.error_category or ErrorCategory.TRANSIENT
        found.setdefault((category, fingerprint(job.error or "")), []).append(job)
    kinds = []
    for (category, _), alike in found.items():
        latest = max(alike, key=_ended)
        kinds.append(
            FailureKind(
                category=category,
                message=latest.error or "",
                entity=latest.entity_uid,
                job=latest.id,
                count=len(alike),
                last=_ended(latest),
            )
        )
    return sorted(kinds, key=attrgetter("count"), reverse=True)


def _ended(job: Job) -> datetime:
    return job.processed_at or job.created_at
