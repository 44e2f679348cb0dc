"""The statements of the clean-up."""

from typing import Final, LiteralString

COUNT_EXPIRED: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) - $retention AS cutoff
OPTIONAL MATCH (job:EmbedJob)
WHERE job.processed_at < cutoff AND job.status IN ['completed', 'failed', 'cancelled']
RETURN cutoff, count(job) AS jobs
"""

HAS_APOC: Final[LiteralString] = """
SHOW PROCEDURES YIELD name WHERE name = 'apoc.periodic.iterate' RETURN count(*) > 0 AS present
"""

OUTER: Final[LiteralString] = """
MATCH (job:EmbedJob) WHERE job.processed_at < $cutoff RETURN job.id AS id
"""
"""Ids, not nodes: APOC fails a batch that holds a node which another clean-up has deleted."""

INNER: Final[LiteralString] = """
MATCH (job:EmbedJob {id: id})
SET job._lock = $token
WITH job
WHERE job.processed_at < $cutoff AND job.status IN ['completed', 'failed', 'cancelled']
WITH job, 'deleted_' + job.status AS counter
DETACH DELETE job
WITH counter, count(*) AS jobs
MATCH (counters:EmbedCounters {name: $queue})
SET counters[counter] = coalesce(counters[counter], 0) + jobs
"""
"""Delete a batch and count it in the same transaction.

Invariant: only terminal jobs past the retention. The condition is asked again under the lock,
because a job that was opened again after the outer match would be lost: 3 of 3 were.
"""

PURGE_WITH_APOC: Final[LiteralString] = """
CALL apoc.periodic.iterate($outer, $inner, {
  batchSize: $batch, parallel: false, retries: 3,
  params: {cutoff: $cutoff, queue: $queue, token: $token}
})
YIELD failedBatches, failedOperations, updateStatistics, batch, errorMessages
RETURN failedBatches AS failed_batches, failedOperations AS failed_operations,
  updateStatistics.nodesDeleted AS deleted,
  keys(batch.errors) + keys(errorMessages) AS errors
"""
"""A failed batch shows in ``failedBatches`` and ``batch.errors`` only: ``failedOperations`` said 0
and ``errorMessages`` was empty for one that was rolled back."""

PURGE_WITHOUT_APOC: Final[LiteralString] = """
MATCH (job:EmbedJob) WHERE job.processed_at < $cutoff
CALL (job) {
  SET job._lock = $token
  WITH job
  WHERE job.processed_at < $cutoff AND job.status IN ['completed', 'failed', 'cancelled']
  WITH job, 'deleted_' + job.status AS counter
  DETACH DELETE job
  WITH counter
  MATCH (counters:EmbedCounters {name: $queue})
  SET counters[counter] = coalesce(counters[counter], 0) + 1
  RETURN count(*) AS deleted
} IN TRANSACTIONS OF $batch ROWS ON ERROR CONTINUE REPORT STATUS AS status
WITH deleted, status, CASE WHEN status.committed = false THEN status.transactionId END AS failed
RETURN coalesce(sum(deleted), 0) AS deleted, count(DISTINCT failed) AS failed_batches,
  collect(DISTINCT status.errorMessage) AS errors
"""
"""The same in plain Cypher; only allowed outside a managed transaction, and safe to repeat.

``= false``, because Neo4j 2026.08 takes ``status.committed`` for a string and refuses ``NOT``.
"""
