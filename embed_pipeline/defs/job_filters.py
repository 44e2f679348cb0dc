"""Jobs that change other jobs by filter: preview first, then for real."""

from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Final

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.metadata import ids, table
from embed_pipeline.defs.operators import operator_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.keys import MAX_KEY_LENGTH
from embed_pipeline.domain.results import BulkReport
from embed_pipeline.operations.selection import job_filter, to_retry
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue


class Category(Enum):
    """Why a job failed."""

    TRANSIENT = ErrorCategory.TRANSIENT.value
    PERMANENT = ErrorCategory.PERMANENT.value
    CRITICAL = ErrorCategory.CRITICAL.value


class LiveStatus(Enum):
    """States in which a job can be cancelled."""

    PENDING = JobStatus.PENDING.value
    PROCESSING = JobStatus.PROCESSING.value


WORD: Final = "^[!-~]+$"
LINE: Final = r"^[^\p{Cc}]*$"
"""Anything in one line: the texts of a run config are shown to others, and kept."""
JobId = Annotated[str, Field(max_length=64, pattern="^[0-9A-Za-z-]+$")]
EntityKey = Annotated[str, Field(max_length=MAX_KEY_LENGTH, pattern=LINE)]
MOST_NAMED: Final = 1_000


class Selection(RunConfig):
    """Which jobs; all conditions must hold, an empty one is ignored."""

    preview: bool = Field(
        default=True,
        description="Only say how many jobs it would be and show some. Set it to false to do it.",
    )
    all_jobs: bool = Field(
        default=False, description="Must be true if no condition is given: everything is meant."
    )
    job_ids: list[JobId] = Field(
        default=[], max_length=MOST_NAMED, description="Ids of jobs, at most 1000."
    )
    entity_keys: list[EntityKey] = Field(
        default=[], max_length=MOST_NAMED, description="Keys of entities, at most 1000."
    )
    model: str | None = Field(
        default=None, max_length=128, pattern=WORD, description="Name of an embedding model."
    )
    categories: list[Category] = Field(
        default=[],
        max_length=len(Category),
        description="Categories of the last error: TRANSIENT, PERMANENT, CRITICAL.",
    )
    older_than_hours: float | None = Field(
        default=None, ge=0, le=8_760, description="Created more than so many hours ago, 0 to 8760."
    )

    def conditions(self) -> dict[str, Any]:
        hours = self.older_than_hours
        return {
            "ids": self.job_ids,
            "entities": self.entity_keys,
            "model": self.model,
            "categories": [ErrorCategory(category.value) for category in self.categories],
            "older_than": None if hours is None else timedelta(hours=hours),
            "everything": self.all_jobs or self.preview,
        }


class RetryConfig(Selection):
    """Which failed jobs are tried again; without categories all but PERMANENT ones."""


class CancelConfig(Selection):
    """Which pending or processing jobs are cancelled."""

    statuses: list[LiveStatus] = Field(
        default=[], max_length=len(LiveStatus), description="PENDING, PROCESSING; empty is both."
    )
    owner: str | None = Field(
        default=None,
        max_length=256,
        pattern=WORD,
        description="Held by this worker or Dagster run.",
    )
    reason: str = Field(
        default="", max_length=500, pattern=LINE, description="Stands on the jobs, for others."
    )

    def conditions(self) -> dict[str, Any]:
        statuses = [JobStatus(status.value) for status in self.statuses]
        return {**super().conditions(), "statuses": statuses, "owner": self.owner}


@op
def retry_jobs(context: dg.OpExecutionContext, config: RetryConfig, neo4j: Neo4jResource) -> None:
    """Give failed jobs a fresh start."""

    async def work(queue: Queue, _settings: Settings) -> BulkReport:
        which = to_retry(await job_filter(queue, **config.conditions()))
        return await queue.admin.retry_failed(which, preview=config.preview)

    _report(context, neo4j.with_queue(work, operator=operator_of(context)), "retried")


@job(retry_jobs)
def retry_failed_jobs() -> None:
    """Give failed jobs a fresh start: pending, no attempts, no error.

    Without categories all but PERMANENT ones, which would fail again. Each retry costs a request
    and its tokens. The first launch is a preview; set preview: false to do it.
    """


@op
def cancel_by_filter(
    context: dg.OpExecutionContext, config: CancelConfig, neo4j: Neo4jResource
) -> None:
    """Cancel pending and processing jobs."""
    by = operator_of(context)

    async def work(queue: Queue, _settings: Settings) -> BulkReport:
        which = await job_filter(queue, **config.conditions())
        return await queue.admin.cancel(
            which, by=str(by), reason=config.reason, preview=config.preview
        )

    _report(context, neo4j.with_queue(work, operator=by), "cancelled")


@job(cancel_by_filter)
def cancel_jobs() -> None:
    """Cancel pending and processing jobs.

    A worker that holds one of them stops before it writes; no vector of a cancelled job is stored.
    The first launch is a preview; set preview: false to do it.
    """


class RestoreConfig(Selection):
    """Which cancelled jobs are made pending again."""


@op
def restore_jobs(
    context: dg.OpExecutionContext, config: RestoreConfig, neo4j: Neo4jResource
) -> None:
    """Make jobs pending again that an operator has cancelled."""

    async def work(queue: Queue, _settings: Settings) -> BulkReport:
        which = await job_filter(queue, **config.conditions())
        return await queue.desk.restore(which, is_preview=config.preview)

    _report(context, neo4j.with_queue(work, operator=operator_of(context)), "restored")


@job(restore_jobs)
def restore_cancelled_jobs() -> None:
    """Undo a cancel: jobs that an operator has cancelled are pending again.

    What the queue itself has cancelled stays so, because it is outdated. The first launch is a
    preview; set preview: false to do it.
    """


def _report(context: dg.OpExecutionContext, report: BulkReport, done: str) -> None:
    counts: dict[str, Any] = {status.value: n for status, n in report.counts.items()}
    if report.is_preview:
        context.log.info(
            f"{report.count} jobs would be {done}; nothing was changed. Launch again with "
            "preview: false to do it"
        )
    else:
        context.log.info(f"{report.count} jobs {done}")
    context.add_output_metadata(
        {
            f"would_be_{done}" if report.is_preview else done: report.count,
            **counts,
            **ids(report.job_ids),
            **_entities(report),
        }
    )


def _entities(report: BulkReport) -> dict[str, Any]:
    if not report.is_preview:
        return {}
    found = zip(report.job_ids, report.entity_uids, strict=True)
    return {"jobs": table({"job": job, "entity": entity} for job, entity in found)}
