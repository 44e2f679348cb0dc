"""The statements behind the figures; all but two cost the same for any queue."""

from typing import Final, LiteralString

NOW: Final[LiteralString] = "RETURN coalesce($now, datetime.realtime().epochMillis) AS now"

LANES: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
RETURN now,
  COUNT { MATCH (job:EmbedPending) WHERE job.run_after > now } AS delayed,
  COUNT { MATCH (job:EmbedPending) WHERE job.run_after <= now } AS due_retries,
  COUNT { MATCH (job:EmbedPending)
    WHERE job.model IS NOT NULL AND job.suspect_at IS NOT NULL } AS suspects,
  COUNT { MATCH (job:EmbedProcessing) WHERE job.lock_until < now } AS expired,
  COLLECT {
    MATCH (job:EmbedProcessing)
    WITH job.status = 'processing' AS is_leased, job.lock_until AS until
    RETURN {without_lock: sum(CASE WHEN is_leased AND until IS NULL THEN 1 ELSE 0 END),
      ended_by_others: sum(CASE WHEN is_leased THEN 0 ELSE 1 END)}
  } AS leased,
  COLLECT {
    MATCH (job:EmbedPending) WHERE job.model IS NOT NULL AND job.suspect_at IS NOT NULL
      AND ($model IS NULL OR job.model = $model)
    WITH min(job.suspect_at) AS first WHERE first IS NOT NULL
    RETURN first
  } + COLLECT {
    MATCH (job:EmbedPending) WHERE job.run_after <= now
      AND ($model IS NULL OR job.model = $model)
    RETURN job.run_after ORDER BY job.run_after LIMIT 1
  } AS oldest_pending,
  COLLECT {
    MATCH (job:EmbedProcessing) WHERE job.lock_until < now
    RETURN job.lock_until ORDER BY job.lock_until LIMIT 1
  } AS oldest_expired,
  COLLECT {
    MATCH (job:EmbedJob) USING INDEX job:EmbedJob(processed_at)
    WHERE job.processed_at IS NOT NULL
    RETURN job.processed_at ORDER BY job.processed_at LIMIT 1
  } AS oldest_ended
"""
"""Heads of the lanes, and what is overdue; looks at all leased jobs, which are few.

A retry that is not due yet is not waiting for anybody, so it does not count as the oldest.
"""

NEXT_HEAD: Final[LiteralString] = """
MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, ready_at)
WHERE job.model > $after AND job.ready_at IS NOT NULL
RETURN job.model AS model, job.ready_at AS ready_at ORDER BY job.model, job.ready_at LIMIT 1
"""
"""The oldest healthy job of the next model; asked once for each model that has any.

An index of ``ready_at`` alone would answer in one step, and every enqueue and every lease would
write it.
"""

BACKLOG: Final[LiteralString] = """
MATCH (queue:EmbedQueue {name: $queue})
WITH queue, coalesce($now, datetime.realtime().epochMillis) AS now
RETURN queue {.*} AS queue, now,
  COUNT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, ready_at)
    WHERE job.model = $model AND job.ready_at IS NOT NULL
    RETURN job LIMIT $most
  } + COUNT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, suspect_at)
    WHERE job.model = $model AND job.suspect_at IS NOT NULL
    RETURN job LIMIT $most
  } + COUNT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, run_after)
    WHERE job.model = $model AND job.run_after <= now
    RETURN job LIMIT $most
  } AS due,
  COLLECT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, ready_at)
    WHERE job.model = $model AND job.ready_at IS NOT NULL
    RETURN job.ready_at ORDER BY job.model, job.ready_at LIMIT 1
  } + COLLECT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, suspect_at)
    WHERE job.model = $model AND job.suspect_at IS NOT NULL
    RETURN job.suspect_at ORDER BY job.model, job.suspect_at LIMIT 1
  } + COLLECT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, run_after)
    WHERE job.model = $model AND job.run_after <= now
    RETURN job.run_after ORDER BY job.model, job.run_after LIMIT 1
  } AS due_since,
  COLLECT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, run_after)
    WHERE job.model = $model AND job.run_after > now
    RETURN job.run_after ORDER BY job.model, job.run_after LIMIT 1
  } AS next_due
"""
"""What a lease could take, lane by lane, counted to ``$most``: cost is at most three times that.
The head of each lane says since when it could have been taken.

``SEEK``, because while the statistics of a busy server lag behind and call an index empty, the
planner scans it for all models and filters: 15,033 hits where a seek has 33.

Retries have an index by model for this alone: behind those of a model that is not drained any more
the due ones of another would not be seen.
"""

ENDED: Final[LiteralString] = """
MATCH (job:EmbedJob) WHERE $since < job.processed_at <= $now
  AND job.ended_elsewhere IS NULL
  AND (job:EmbedCompleted OR job:EmbedFailed OR job:EmbedCancelled)
RETURN job.status AS status, job.attempts AS attempts, count(job) AS jobs
"""
"""Jobs that our own workers ended since then: cost is that of the window.

What ended later than now did so before the clock was set back, at an unknown time.
"""

CATEGORIES: Final[LiteralString] = """
MATCH (job:EmbedFailed)
RETURN CASE job.status WHEN 'failed' THEN coalesce(job.error_category, 'TRANSIENT') END AS category,
  count(job) AS jobs
"""
"""All failed jobs by category, null for those that were opened again by hand: cost is that of
the failed jobs."""

READ_COUNTERS: Final[LiteralString] = """
OPTIONAL MATCH (counters:EmbedCounters {name: $queue})
RETURN counters {.*} AS counters
"""
