"""Failed jobs for people: which, why, and what to do about each."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.metadata import of_queue, table
from embed_pipeline.defs.overview import Point, drawn, point
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.failure_kinds import FailureKind
from embed_pipeline.domain.health import Reading
from embed_pipeline.domain.job import Job
from embed_pipeline.settings.secrets import without_secrets
from embed_pipeline.worker.report import DrainReport

ADVICE: Final = {
    ErrorCategory.TRANSIENT: "launch retry_failed_jobs with preview: false, job_ids: [{job}]",
    ErrorCategory.PERMANENT: "change the text of the entity, which makes a new job; or mend the "
    "cause and launch retry_failed_jobs with preview: false, job_ids: [{job}], "
    "categories: [PERMANENT]",
    ErrorCategory.CRITICAL: "mend the fault, then launch retry_failed_jobs with preview: false, "
    "job_ids: [{job}], categories: [CRITICAL]",
}


def advice(category: ErrorCategory | None, job_id: str) -> str:
    """What to do about a failed job, so that it works as it is written."""
    return ADVICE[category or ErrorCategory.TRANSIENT].format(job=job_id)


def failed_rows(jobs: Sequence[Job]) -> dg.TableMetadataValue:
    """Failed jobs, one by one."""
    return table(
        {
            "category": job.error_category.value if job.error_category else "",
            "message": without_secrets(job.error or ""),
            "entity": job.entity_uid,
            "job": job.id,
            "what to do": advice(job.error_category, job.id),
        }
        for job in jobs
    )


def what_failed(report: DrainReport) -> str:
    """Links to more about the failed jobs of a drain."""
    shown = len(report.failed_ids)
    of = "" if shown == report.failed.total() else f" {shown} of"
    return f"The table failed_jobs of this run shows{of} them, why, and what to do"


def of_reading(reading: Reading, before: Sequence[Point], *, at: float) -> dict[str, Any]:
    """Every figure of a reading and today's failures, below the picture of the last hour."""
    figures = of_queue(reading)
    points = [*before, point(at, figures)]
    return {**drawn(points), **_kinds(reading.failed_today), **figures}


def _kinds(kinds: Iterable[FailureKind]) -> dict[str, Any]:
    """Today's failures by kind; empty when there are none."""
    rows = [
        {
            "jobs": kind.count,
            "category": kind.category.value,
            "message": without_secrets(kind.message),
            "entity": kind.entity,
            "job": kind.job,
            "last": f"{kind.last:%H:%M:%S} UTC",
            "what to do": advice(kind.category, kind.job),
        }
        for kind in kinds
    ]
    return {"failed_today": table(rows)} if rows else {}
