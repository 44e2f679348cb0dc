"""The statements about batches. There are few of them at a time, so none needs an index."""

from typing import Final, LiteralString

BEGIN_BATCH: Final[LiteralString] = """
MERGE (batch:EmbedBatch {id: $id})
WITH batch, coalesce($now, datetime.realtime().epochMillis) AS now
SET batch.status = 'preparing', batch.model = $model, batch.created_at = now,
    batch.holder = $holder, batch.until = now + $turn
"""
"""Remember a batch under a new id."""

LOCK_BATCH: Final[LiteralString] = """
MATCH (batch:EmbedBatch {id: $id})
SET batch._lock = $token
"""

READ_BATCH: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
OPTIONAL MATCH (batch:EmbedBatch {id: $id})
RETURN batch {.*} AS batch, now
"""
"""Read a locked batch, and the time after the wait for it."""

READ_BATCHES: Final[LiteralString] = """
MATCH (batch:EmbedBatch)
RETURN batch {.*} AS batch ORDER BY batch.created_at, batch.id
"""

READ_TIME: Final[LiteralString] = """
RETURN coalesce($now, datetime.realtime().epochMillis) AS now
"""

WRITE_BATCH: Final[LiteralString] = """
MATCH (batch:EmbedBatch {id: $id})
SET batch += $properties
"""
"""Write what was decided about a locked batch."""

DROP_BATCH: Final[LiteralString] = """
MATCH (batch:EmbedBatch {id: $id})
DELETE batch
"""
"""Forget a locked batch: all its jobs are settled or given back."""

MARK_SENT: Final[LiteralString] = """
UNWIND $rows AS row
MATCH (job:EmbedJob {id: row.id}) USING INDEX job:EmbedJob(id)
WHERE job.fence = row.fence AND job.lock_owner = row.owner
SET job.sent_hash = row.hash, job.sent_tokens = row.tokens
"""
"""Remember what is sent for locked jobs.

The answer comes hours later, to a process that has not seen the text: its hash tells whether the
vector still fits.
"""

PICK_HELD: Final[LiteralString] = """
MATCH (job:EmbedProcessing)
WHERE job.lock_owner = $owner AND job.lock_until < $until
RETURN job.id AS id LIMIT $limit
"""
"""Leases of a batch that end too early; lock and read again before acting on one."""

HOLD_JOBS: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX job:EmbedJob(id)
WHERE job.status = 'processing' AND job.lock_owner = $owner AND job.lock_until < $until
SET job.lock_until = $until, job.heartbeat_at = now
RETURN count(job) AS jobs
"""
"""Let locked leases last as long as the batch. Invariant: only those that it still holds."""

SENT_JOBS: Final[LiteralString] = """
MATCH (job:EmbedProcessing) WHERE job.lock_owner = $owner AND job.status = 'processing'
RETURN job.id AS id, job.entity_uid AS uid, job.version AS version, job.fence AS fence,
  coalesce(job.sent_hash, '') AS hash, coalesce(job.sent_tokens, 0) AS tokens
"""
"""The jobs that a batch still holds. Looks at all leased jobs, once per collection."""
