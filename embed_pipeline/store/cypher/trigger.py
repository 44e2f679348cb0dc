"""The trigger, and the statements that install it."""

from typing import Final, LiteralString

from embed_pipeline.store.cypher.lanes import enter_lane

TRIGGER_NAME: Final = "embed_pipeline_enqueue"

TRIGGER: Final[LiteralString] = (
    """
UNWIND $createdNodes
  + coalesce($assignedLabels[$label], [])
  + reduce(nodes = [], name IN $watched |
      nodes
      + [change IN coalesce($assignedNodeProperties[name], [])
         WHERE change.old IS NULL OR change.old <> change.new | change.node]
      + [change IN coalesce($removedNodeProperties[name], []) | change.node])%ends% AS entity
WITH DISTINCT entity
WHERE entity:%label% AND %current_entity%
WITH entity.%key% AS key, entity.%version% AS given
WITH CASE
    WHEN key IS :: STRING NOT NULL THEN key
    WHEN key IS :: INTEGER NOT NULL THEN toString(key)
    WHEN key IS :: FLOAT NOT NULL THEN
      CASE WHEN abs(key) <= $exact AND key = floor(key) AND toString(key) <> '-0.0'
        THEN toString(toInteger(key)) END
  END AS uid,
  CASE
    WHEN given IS NULL THEN 1
    WHEN given IS :: INTEGER THEN given
    WHEN given IS :: FLOAT THEN
      CASE WHEN abs(given) <= $exact AND given = floor(given) AND toString(given) <> '-0.0'
        THEN toInteger(given) END
    WHEN given IS :: STRING THEN CASE WHEN given =~ '[0-9]{1,15}' THEN toInteger(given) ELSE 1 END
  END AS version
WITH DISTINCT uid, version
WHERE uid IS NOT NULL AND version IS NOT NULL AND 0 < size(uid) <= $longest AND version >= 0
WITH uid, version, datetime.realtime().epochMillis AS now ORDER BY uid, version
MERGE (job:EmbedJob {entity_uid: uid, model: $model, version: version})
ON CREATE SET job:EmbedPending, job.id = randomUUID(), job.status = 'pending',
  job.priority = 0, job.attempts = 0, job.max_attempts = $max_attempts,
  job.fence = 0, job.expiries = 0, job.created_at = now, job.queued_at = now,"""
    + enter_lane(priority="0", queued_at="now", expiries="0")
    + """
WITH job, now WHERE NOT job:EmbedProcessing AND (NOT job:EmbedPending OR job.put_off)
WITH job, now ORDER BY job.id
SET job._lock = 'trigger'
WITH job, now WHERE job.fence IS NOT NULL
  AND (job.status IN ['completed', 'failed', 'cancelled']
    OR job.status = 'pending' AND job.put_off AND job.attempts = 0)
WITH job, now, CASE WHEN job.put_off THEN 0 ELSE job.priority END AS priority
REMOVE job:EmbedCompleted:EmbedFailed:EmbedCancelled
SET job:EmbedPending, job.status = 'pending', job.attempts = 0, job.expiries = 0,
  job.priority = priority, job.put_off = null,
  job.queued_at = now, job.processed_at = null, job.text_hash = null,
  job.error = null, job.error_category = null, job.error_stack = null,
  job.error_history = null, job.cancelled_by = null, job.ended_elsewhere = null,
  job.forced_fence = null,"""
    + enter_lane(priority="priority", queued_at="now", expiries="0")
)
"""Make or revive the job of every entity whose text a transaction creates or changes.

Runs inside the client's transaction, so entity and job commit together. It cannot fail the
client's write: every value is checked for its type before it is used, and what cannot be a job, or
is one that another program wrote, is left to the scan. Keys and versions become those of jobs as in
``domain.keys``. Jobs that are pending or processing are not touched, so it waits for no worker: a
completion compares the text under the lock of the entity, which the client's transaction holds.
One that was put off is brought forward: its entity itself has changed now; if it has failed since,
it waits for its retry. Otherwise it decides as ``lifecycle.on_enqueue``; a test compares the two.
"""

ENDS: Final[LiteralString] = """
  + reduce(nodes = [], relation IN [relation IN
      $createdRelationships + $deletedRelationships
      + reduce(changed = [], name IN $watched_relations |
          changed
          + [change IN coalesce($assignedRelationshipProperties[name], [])
             WHERE change.old IS NULL OR change.old <> change.new | change.relationship]
          + [change IN coalesce($removedRelationshipProperties[name], []) | change.relationship])
      WHERE ($relation_types = [] OR type(relation) IN $relation_types)
        AND NOT type(relation) IN ['FROM_DOCUMENT', 'NEXT_CHUNK']][0..$most_relations] |
    nodes + [node IN [startNode(relation), endNode(relation)] WHERE NOT node IN $deletedNodes])"""
"""Both ends of the relationships that a transaction creates, changes or removes.

A bounded number of them: a client that joins a hub to everything must not wait for so many jobs,
and the scan finds the rest. Not those of pieces: the completion that writes them would ask for
itself again.
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
