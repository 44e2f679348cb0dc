"""Deletes what the retention has ended: the one way for schedule, job and command line."""

from datetime import timedelta

from embed_pipeline.domain.results import Cleanup
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue


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
