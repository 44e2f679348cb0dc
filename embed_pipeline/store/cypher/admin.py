"""The statements of everybody who is not a worker; locks as in ``cypher.worker``."""

from typing import Final, LiteralString

from embed_pipeline.store.cypher.lanes import enter_lane

ENSURE_JOBS: Final[LiteralString] = (
    """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $rows AS row
MERGE (job:EmbedJob {entity_uid: row.entity_uid, model: row.model, version: row.version})
ON CREATE SET
  job:EmbedPending,
  job.id = randomUUID(),
  job.status = 'pending',
  job.priority = row.priority,
  job.text_hash = row.text_hash,
  job.created_at = now,
  job.queued_at = now,
  job.attempts = 0,
  job.max_attempts = $max_attempts,
  job.fence = 0,
  job.expiries = 0,
  job.forced_fence = row.forced_fence,
  job.put_off = row.put_off,
  job._lock = $token,"""
    + enter_lane(
        priority="row.priority", queued_at="now", expiries="0", run_after="now + row.delay"
    )
    + """
RETURN row.index AS index, job {.*} AS job, coalesce(job._lock = $token, false) AS created,
  CASE WHEN job.fence IS NULL THEN elementId(job) END AS stray
"""
)
"""One job per key. Invariant: MERGE only on the unique key, sorted, so that 50 at once leave one.

Without the constraint 12 writers made 579 nodes for 60 keys, and with shuffled keys 107 of 120
transactions died in deadlocks.
"""

PICK_OLDER: Final[LiteralString] = """
UNWIND $rows AS row
MATCH (old:EmbedJob {entity_uid: row.entity_uid, model: row.model})
WHERE old.version < row.version AND old:EmbedPending
RETURN old.id AS id, max(row.version) AS version
"""
"""Pending jobs that a newer version makes useless; lock and read again before ending one."""

PATCH_JOBS: Final[LiteralString] = """
UNWIND $rows AS row
MATCH (job:EmbedJob {id: row.id})
SET job += row.properties
"""
"""Change locked jobs without moving them: priority, hash of the text."""

_FILTER: Final[LiteralString] = """
  ($statuses IS NULL OR job.status IN $statuses)
  AND ($model IS NULL OR job.model = $model)
  AND ($entity_uids IS NULL OR job.entity_uid IN $entity_uids)
  AND ($categories IS NULL OR job.error_category IN $categories)
  AND ($excluded_category IS NULL OR coalesce(job.error_category, '') <> $excluded_category)
  AND ($owner IS NULL OR job.lock_owner = $owner OR job.lock_owner STARTS WITH $owner + '/')
  AND ($created_before IS NULL OR job.created_at < $created_before)
  AND ($ended_before IS NULL OR job.processed_at < $ended_before)
  AND ($has_lock IS NULL OR (job.lock_until IS NOT NULL) = $has_lock)
  AND ($not_by IS NULL OR coalesce(job.cancelled_by, $not_by) <> $not_by)
"""

_SOURCES: Final[dict[str, LiteralString]] = {
    "ids": """
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX SEEK job:EmbedJob(id) WHERE job.id > $after AND""",
    "entity_uids": """
UNWIND $entity_uids AS uid
MATCH (job:EmbedJob {entity_uid: uid})
USING INDEX SEEK job:EmbedJob(entity_uid, model, version)
WHERE job.model IS NOT NULL AND job.version IS NOT NULL AND job.id > $after AND""",
    "failed": """
MATCH (job:EmbedFailed) USING INDEX job:EmbedFailed(id) WHERE job.id > $after AND""",
    "all": """
MATCH (job:EmbedJob) USING INDEX job:EmbedJob(id) WHERE job.id > $after AND""",
}
"""Where to look for the jobs of a filter; each walks an index once.

People ask for the jobs of an entity, and for the failed ones. Among a million others those would
take a second to find, and they are the few. The hints are needed: without, the jobs of an entity
were looked for by walking over all ids, and without SEEK by walking over all keys.
"""

PAGE_OF_JOBS: Final[dict[str, LiteralString]] = {
    name: f"""{source}{_FILTER}
WITH job ORDER BY job.id LIMIT $limit
RETURN job {{.*}} AS job
"""
    for name, source in _SOURCES.items()
}
"""A page of jobs in order of their ids."""

NEWEST_JOBS: Final[dict[str, LiteralString]] = {
    name: f"""{source}{_FILTER}
  AND ($created_at IS NULL OR job.created_at < $created_at
    OR (job.created_at = $created_at AND job.id > $last))
WITH job ORDER BY job.created_at DESC, job.id LIMIT $limit
RETURN job {{.*}} AS job
"""
    for name, source in _SOURCES.items()
}
"""The newest jobs of a filter, for people; looks at all jobs that the source has."""

COUNT_OF_JOBS: Final[dict[str, LiteralString]] = {
    name: f"""{source}{_FILTER}
RETURN job.status AS status, count(job) AS jobs
"""
    for name, source in _SOURCES.items()
}
"""How many jobs a change by filter would touch."""

COUNT_JOBS: Final[LiteralString] = """
RETURN
  COUNT { (:EmbedJob) } AS total,
  COUNT { (:EmbedPending) } AS pending,
  COUNT { (:EmbedProcessing) } AS processing,
  COUNT { (:EmbedCompleted) } AS completed,
  COUNT { (:EmbedFailed) } AS failed,
  COUNT { (:EmbedCancelled) } AS cancelled
"""
"""Six reads of the count store, whatever the size of the queue."""

READ_EXPIRED: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
MATCH (job:EmbedProcessing) WHERE job.lock_until < now - $grace
RETURN job {.*} AS job ORDER BY job.lock_until LIMIT $limit
"""
"""What the next recovery would take away, oldest first; for previews."""

READ_STATE: Final[LiteralString] = """
MATCH (queue:EmbedQueue {name: $queue})
RETURN queue {.*} AS queue, coalesce($now, datetime.realtime().epochMillis) AS now
"""

SET_QUEUE: Final[LiteralString] = """
MATCH (queue:EmbedQueue {name: $queue})
SET queue += $properties
"""
"""Change the locked queue node."""

PROBE_BREAKER: Final[LiteralString] = """
MATCH (queue:EmbedQueue {name: $queue})
SET queue.breaker = 'half_open', queue.breaker_probe_at = $probe_at
"""
"""A probe is out; the next one only when its time has passed without news."""
