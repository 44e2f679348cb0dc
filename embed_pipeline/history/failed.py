"""What fails, and why: failed jobs grouped by the fingerprint of their error."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Final

import pandas as pd

from embed_pipeline.domain.errors import ErrorCategory, fingerprint
from embed_pipeline.domain.job import Job, JobFilter, JobStatus
from embed_pipeline.history.moments import Moment, to_time
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.following import opened_live
from embed_pipeline.settings import Settings
from embed_pipeline.settings.embeddings import chosen_embedding
from embed_pipeline.store.queue import Queue

PAGE: Final = 1_000


@dataclass(slots=True)
class Kind:
    """Failed jobs with the same kind of error; the example is the one that failed last."""

    category: str
    fingerprint: str
    count: int
    first_seen: datetime
    last_seen: datetime
    example_job: str
    example_entity: str
    example_model: str
    example_attempts: int
    example_error: str

    @classmethod
    def of(cls, job: Job, at: datetime) -> "Kind":
        """A kind with a single job."""
        error = job.error or ""
        return cls(
            category=job.error_category or "",
            fingerprint=fingerprint(error),
            count=1,
            first_seen=at,
            last_seen=at,
            example_job=job.id,
            example_entity=job.entity_uid,
            example_model=job.model,
            example_attempts=job.attempts,
            example_error=error,
        )

    def joined(self, other: "Kind") -> "Kind":
        """Merge two groups."""
        latest = max(self, other, key=lambda kind: (kind.last_seen, kind.example_job))
        latest.count = self.count + other.count
        latest.first_seen = min(self.first_seen, other.first_seen)
        return latest


def failures(
    since: Moment = None,
    until: Moment = None,
    *,
    category: ErrorCategory | str | None = None,
    settings: Settings | None = None,
) -> pd.DataFrame:
    """Failed jobs by category and kind of error, the most frequent first.

    Read from the job nodes, so it knows what is failed now: jobs that were retried or have
    outlived their retention are not in it. ``since`` and ``until`` are about when they failed.

    Raises:
        ValueError: there is no such category or time.
        EmbedPipelineError: a setting is wrong, or Neo4j does not answer.
    """
    start, end = to_time(since), to_time(until)
    which = JobFilter(statuses=frozenset({JobStatus.FAILED}), categories=_categories(category))
    settings = settings or chosen_embedding(None)

    async def work() -> list[Kind]:
        kinds: dict[tuple[str, str], Kind] = {}
        async with opened_live(settings) as (queue, _):
            async for job in _jobs(queue, which):
                at = job.processed_at or job.created_at
                if (start is None or at >= start) and (end is None or at < end):
                    kind = Kind.of(job, at)
                    key = kind.category, kind.fingerprint
                    kinds[key] = kinds[key].joined(kind) if key in kinds else kind
        return list(kinds.values())

    return _frame(finish(work()))


async def _jobs(queue: Queue, which: JobFilter) -> AsyncIterator[Job]:
    after: str | None = None
    while page := await queue.admin.find_jobs(which, limit=PAGE, after=after):
        for job in page:
            yield job
        after = page[-1].id


def _categories(category: ErrorCategory | str | None) -> frozenset[ErrorCategory] | None:
    if category is None:
        return None
    try:
        return frozenset({ErrorCategory(category.upper())})
    except ValueError:
        allowed = ", ".join(ErrorCategory)
        raise ValueError(f"category is {category!r}; it must be one of {allowed}") from None


def _frame(kinds: list[Kind]) -> pd.DataFrame:
    kinds = sorted(kinds, key=lambda kind: (-kind.count, kind.category, kind.fingerprint))
    columns = [field.name for field in fields(Kind)]
    frame = pd.DataFrame([asdict(kind) for kind in kinds], columns=columns)
    for name in ("first_seen", "last_seen"):
        frame[name] = pd.to_datetime(frame[name], utc=True).dt.as_unit("us")
    return frame.astype({"count": "int64", "example_attempts": "int64"})
