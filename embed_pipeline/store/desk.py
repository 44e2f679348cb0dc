"""What only people at a desk ask for: the newest jobs, and to undo a cancel."""

from dataclasses import dataclass, replace

from embed_pipeline.domain.audit import OperatorAction, describe_filter
from embed_pipeline.domain.job import Job, JobFilter, JobStatus
from embed_pipeline.domain.lifecycle import Move
from embed_pipeline.domain.results import BulkReport
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import Database
from embed_pipeline.store.filtering import change_all, filter_parameters, preview, read_newest
from embed_pipeline.store.moves import BY_QUEUE, Change, reopened
from embed_pipeline.store.records import Properties, to_job


@dataclass(frozen=True, slots=True)
class Neo4jDesk:
    """Operations for people that no program needs."""

    database: Database
    config: QueueConfig

    async def newest(
        self, which: JobFilter, *, limit: int = 50, after: str | None = None
    ) -> list[Job]:
        """Read a page of jobs, the newest first, beginning after the job ``after``."""
        parameters = filter_parameters(which)
        page = await self.database.read(
            lambda tx: read_newest(tx, parameters, limit=limit, after=after)
        )
        return [to_job(job) for job in page]

    async def restore(self, which: JobFilter, *, is_preview: bool = False) -> BulkReport:
        """Make jobs pending again that an operator has cancelled, as fresh as retried ones.

        What the queue itself has cancelled stays so: those jobs are outdated.
        """
        cancelled = frozenset({JobStatus.CANCELLED})
        parameters = filter_parameters(replace(which, statuses=cancelled), not_by=BY_QUEUE)
        if is_preview:
            return await preview(self.database, parameters)

        def decide(job: Properties, now: int) -> Change | None:
            is_ours = job["status"] == JobStatus.CANCELLED
            is_meant = is_ours and job.get("cancelled_by") not in (None, BY_QUEUE)
            return reopened(job, Move.REVIVE, now=now) if is_meant else None

        said = describe_filter(which)
        note = AuditNote(self.database, OperatorAction.RESTORE, said, self.config.secrets)
        return await change_all(
            self.database, self.config.queue, parameters, decide, counter="revived", note=note
        )
