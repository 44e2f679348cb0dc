"""Deletes what the retention has ended: the one way for schedule, job and command line."""

from dataclasses import dataclass
from datetime import timedelta

from embed_pipeline.domain.results import PurgeReport
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue


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


async def clean_up(
    queue: Queue, settings: Settings, *, retention: timedelta | None = None, dry_run: bool = False
) -> Cleanup:
    """Delete ended jobs past ``retention``, and entries of the audit past that of the settings.

    A shorter ``retention`` than that of the settings shortens no trace of who did what.
    """
    jobs = await queue.purge.purge_terminal(
        retention=retention or settings.retention, dry_run=dry_run
    )
    kept = timedelta(days=settings.retention_days)
    return Cleanup(jobs, await queue.audit.purge(retention=kept, dry_run=dry_run))
