"""The trigger, and the statements that install it."""

from typing import Final, LiteralString

TRIGGER_NAME: Final = "embed_pipeline_enqueue"

TRIGGER: Final[LiteralString] = """
UNWIND $createdNodes
  + coalesce($assignedLabels[$label], [])
  + reduce(nodes = [], name IN $watched |
      nodes
      + [change IN coalesce($assignedNodeProperties[name], [])
         WHERE change.old IS NULL OR change.old <> change.new | change.node]
      + [change IN coalesce($removedNodeProperties[name], []) | change.node]) AS entity
WITH DISTINCT entity
WHERE entity:%label% AND entity.%valid_to% IS NULL
WITH entity.%key% AS uid, coalesce(entity.%version%, 1) AS version
WHERE uid IS :: STRING NOT NULL AND version IS :: INTEGER NOT NULL
WITH DISTINCT uid, version
WHERE 0 < size(uid) <= $longest AND version >= 0
WITH uid, version, datetime.realtime().epochMillis AS now ORDER BY uid, version
MERGE (job:EmbedJob {entity_uid: uid, model: $model, version: version})
ON CREATE SET job:EmbedPending, job.id = randomUUID(), job.status = 'pending',
  job.priority = 0, job.urgency = 0, job.attempts = 0, job.max_attempts = $max_attempts,
  job.fence = 0, job.expiries = 0,
  job.created_at = now, job.queued_at = now, job.ready_at = now
WITH job, now WHERE NOT job:EmbedPending AND NOT job:EmbedProcessing
WITH job, now ORDER BY job.id
SET job._lock = 'trigger'
WITH job, now WHERE job.status IN ['completed', 'failed', 'cancelled']
REMOVE job:EmbedCompleted:EmbedFailed:EmbedCancelled
SET job:EmbedPending, job.status = 'pending', job.attempts = 0, job.expiries = 0,
  job.queued_at = now, job.ready_at = now,
  job.urgency = -job.priority, job.processed_at = null, job.text_hash = null,
  job.error = null, job.error_category = null, job.error_stack = null,
  job.error_history = null, job.cancelled_by = null
"""
"""Make or revive the job of every entity whose text a transaction creates or changes.

Runs inside the client's transaction, so entity and job commit together. It cannot fail the
client's write: every value is checked for its type before it is used, and what cannot be a job is
left to the scan. Jobs that are pending or processing are not touched, so it waits for no worker:
a completion compares the text under the lock of the entity, which the client's transaction holds.
"""

INSTALL_TRIGGER: Final[LiteralString] = """
CALL apoc.trigger.install($database, $name, $statement, {phase: 'before'}, {params: $params})
YIELD name RETURN name
"""

DROP_TRIGGER: Final[LiteralString] = """
CALL apoc.trigger.drop($database, $name) YIELD name RETURN name
"""

SHOW_TRIGGER: Final[LiteralString] = """
CALL apoc.trigger.show($database) YIELD name, query, params, paused
RETURN name, query, params, paused
"""
"""All triggers; the system database knows no WHERE."""

ACTIVE_TRIGGER: Final[LiteralString] = """
CALL apoc.trigger.list() YIELD name, query, params, paused
WITH * WHERE name = $name AND NOT paused RETURN name, query, params
"""
"""What the server really runs; a change reaches it after ``apoc.trigger.refresh``."""
