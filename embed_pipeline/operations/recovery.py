"""Takes back what dead workers hold: the one way for sensor, job and command line."""

import logging
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.results import RecoveredJob
from embed_pipeline.store.queue import Queue

logger = logging.getLogger(__name__)

PAGE: Final = 500


async def recover_all(
    queue: Queue, *, grace: timedelta, limit: int | None = None
) -> list[RecoveredJob]:
    """Take expired leases away, at most ``limit``, and record the recovery."""
    jobs: list[RecoveredJob] = []
    while limit is None or len(jobs) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(jobs))
        page = await queue.jobs.recover_expired(limit=size, grace=grace)
        jobs += page
        for job in page:
            logger.warning("%s", job.line)
        if len(page) < size:
            break
    await queue.admin.record_recovery()
    return jobs
