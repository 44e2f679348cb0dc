"""One structured line per event of a drain, with the ids of its jobs."""

import logging
from collections.abc import Sequence

from embed_pipeline.domain.job import Lease, run_id_of

logger = logging.getLogger(__name__)


def log_jobs(level: int, what: str, owner: str, leases: Sequence[Lease]) -> None:
    """Say what happened to all of these jobs; one line, however many they are."""
    if logger.isEnabledFor(level):
        ids = ",".join(lease.job_id for lease in leases)
        run = run_id_of(owner)
        logger.log(level, "%s owner=%s run=%s jobs=%d ids=%s", what, owner, run, len(leases), ids)
