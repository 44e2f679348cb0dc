"""The statements of the clean-up."""

from typing import Final, LiteralString

from embed_pipeline.store.cypher.audit import COUNT_DELETED

COUNT_EXPIRED: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
WITH now - $retention.completed AS completed, now - $retention.failed AS failed,
  now - $retention.cancelled AS cancelled, now - $shortest AS last
OPTIONAL MATCH (job:EmbedJob)
WHERE job.processed_at < last
  AND job.processed_at < CASE job.status WHEN 'completed' THEN completed WHEN 'failed' THEN failed
    WHEN 'cancelled' THEN cancelled END
RETURN {completed: completed, failed: failed, cancelled: cancelled} AS cutoffs, last,
  count(job) AS jobs
"""

HAS_APOC: Final[LiteralString] = """
SHOW PROCEDURES YIELD name WHERE name = 'apoc.periodic.iterate' RETURN count(*) > 0 AS present
"""

_IS_OVER: Final[LiteralString] = """job.processed_at < CASE job.status
    WHEN 'completed' THEN $cutoffs.completed WHEN 'failed' THEN $cutoffs.failed
    WHEN 'cancelled' THEN $cutoffs.cancelled END"""
"""Null, and so not true, for every other status."""

OUTER: Final[LiteralString] = """
MATCH (job:EmbedJob) WHERE job.processed_at < $last RETURN job.id AS id
"""
"""Ids, not nodes: APOC fails a batch that holds a node which another clean-up has deleted."""

INNER: Final[LiteralString] = (
    """
MATCH (job:EmbedJob {id: id})
SET job._lock = $token
WITH job
WHERE """
    + _IS_OVER
    + """
WITH job, 'deleted_' + job.status AS counter
DETACH DELETE job
WITH counter, count(*) AS jobs
"""
    + COUNT_DELETED
    + """\
WITH counter, jobs
MATCH (counters:EmbedCounters {name: $queue})
SET counters[counter] = coalesce(counters[counter], 0) + jobs
"""
)
"""Delete a batch and count it in the same transaction.

Invariant: only terminal jobs past the retention. The condition is asked again under the lock,
because a job that was opened again after the outer match would be lost: 3 of 3 were.
"""

PURGE_WITH_APOC: Final[LiteralString] = """
CALL apoc.periodic.iterate($outer, $inner, {
  batchSize: $batch, parallel: false, retries: 3,
  params: {cutoffs: $cutoffs, last: $last, queue: $queue, token: $token, entries: $entries,
    now: $now}
})
YIELD failedBatches, failedOperations, updateStatistics, batch, errorMessages
RETURN failedBatches AS failed_batches, failedOperations AS failed_operations,
  updateStatistics.nodesDeleted AS deleted,
  keys(batch.errors) + keys(errorMessages) AS errors
"""
"""A failed batch shows in ``failedBatches`` and ``batch.errors`` only: ``failedOperations`` said 0
and ``errorMessages`` was empty for one that was rolled back."""

PURGE_WITHOUT_APOC: Final[LiteralString] = (
    """
MATCH (job:EmbedJob) WHERE job.processed_at < $last
CALL (job) {
  SET job._lock = $token
  WITH job
  WHERE """
    + _IS_OVER
    + """
  WITH job, 'deleted_' + job.status AS counter
  DETACH DELETE job
  WITH counter, 1 AS jobs
"""
    + COUNT_DELETED
    + """\
  WITH counter
  MATCH (counters:EmbedCounters {name: $queue})
  SET counters[counter] = coalesce(counters[counter], 0) + 1
  RETURN count(*) AS deleted
} IN TRANSACTIONS OF $batch ROWS ON ERROR CONTINUE REPORT STATUS AS status
WITH deleted, status, CASE WHEN status.committed = false THEN status.transactionId END AS failed
RETURN coalesce(sum(deleted), 0) AS deleted, count(DISTINCT failed) AS failed_batches,
  collect(DISTINCT status.errorMessage) AS errors
"""
)
"""The same in plain Cypher; only allowed outside a managed transaction, and safe to repeat.

``= false``, because Neo4j 2026.08 takes ``status.committed`` for a string and refuses ``NOT``.
"""
