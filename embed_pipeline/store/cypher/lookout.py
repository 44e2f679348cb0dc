"""The statements that look at leases and failures without touching them."""

from typing import Final, LiteralString

COUNT_OPEN: Final[LiteralString] = """
RETURN COUNT { (:EmbedPending) } + COUNT { (:EmbedProcessing) } AS open
"""
"""Two reads of the count store, whatever the size of the queue."""

READ_HOLDERS: Final[LiteralString] = """
MATCH (job:EmbedProcessing) WHERE job.lock_owner IS NOT NULL
RETURN DISTINCT job.lock_owner AS owner ORDER BY owner
"""
"""Who holds jobs; looks at all leased jobs, which are few, and at none when the queue rests."""


READ_FAILED: Final[LiteralString] = """
MATCH (job:EmbedFailed) WHERE job.processed_at >= $since AND job.status = 'failed'
RETURN job {.*} AS job ORDER BY job.processed_at DESC LIMIT $limit
"""
"""The latest failures since then; cost is that of the failed jobs, like ``CATEGORIES``."""


FIND_OVERDUE: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
CALL (now) {
  MATCH (job:EmbedJob) USING INDEX SEEK job:EmbedJob(processed_at)
  WHERE job.processed_at < now - $kept
  RETURN job ORDER BY job.processed_at DESC LIMIT $limit
}
WITH now, job WHERE job.status = $status
RETURN max(now - job.processed_at) AS age
"""
"""The age of jobs of one state among the last that ended before then: null if there are none.

Others may be kept for longer, so a look from the oldest on would see only these.
"""
