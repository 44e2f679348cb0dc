"""The statements that find and put right jobs which others wrote or edited."""

from typing import Final, LiteralString

STATE_LABELS: Final[LiteralString] = (
    "job:EmbedPending:EmbedProcessing:EmbedCompleted:EmbedFailed:EmbedCancelled"
)
"""To be removed by whatever moves a job: a wrong label never stays beside the right one."""

LABELS: Final[LiteralString] = """{pending: 'EmbedPending', processing: 'EmbedProcessing',
  completed: 'EmbedCompleted', failed: 'EmbedFailed', cancelled: 'EmbedCancelled'}"""
"""The label of each status."""

_OWN: Final[LiteralString] = (
    "['EmbedPending', 'EmbedProcessing', 'EmbedCompleted', 'EmbedFailed', 'EmbedCancelled']"
)

COUNT_STRAYS: Final[LiteralString] = """
RETURN COUNT { (:EmbedJob) } AS nodes,
  COUNT { (:EmbedPending) } + COUNT { (:EmbedProcessing) } + COUNT { (:EmbedCompleted) }
    + COUNT { (:EmbedFailed) } + COUNT { (:EmbedCancelled) } AS labelled,
  COLLECT {
    MATCH (job:EmbedProcessing) USING INDEX SEEK job:EmbedProcessing(status)
    WHERE job.status < 'processing'
    RETURN elementId(job) LIMIT $limit
  } + COLLECT {
    MATCH (job:EmbedProcessing) USING INDEX SEEK job:EmbedProcessing(status)
    WHERE job.status > 'processing'
    RETURN elementId(job) LIMIT $limit
  } AS moved
"""
"""Six reads of the count store and two seeks, however many jobs are leased.

Nodes without a state label, and with two of them, make the two sums differ. A leased job whose
status was removed, or is no text, is not in these seeks: recovery finds it when its lease expires,
the walk before that. Looking at 12,288 leased jobs one by one took 44 to 157 ms.
"""

PICK_UNLABELLED: Final[LiteralString] = f"""
MATCH (job:EmbedJob)
WHERE size([name IN labels(job) WHERE name IN {_OWN}]) <> 1
RETURN elementId(job) AS element LIMIT $limit
"""
"""Looks at all jobs: asked only when the counts say that there are such nodes."""

WALK_JOBS: Final[LiteralString] = f"""
MATCH (job:EmbedJob) USING INDEX job:EmbedJob(id) WHERE job.id > $after
WITH job ORDER BY job.id LIMIT $limit
WITH job, [name IN labels(job) WHERE name IN {_OWN}] AS found
WITH job.id AS id, CASE
  WHEN job.fence IS NULL OR coalesce(found <> [{LABELS}[toStringOrNull(job.status)]], true)
    OR (job.status = 'pending' AND job.ready_at IS NULL AND job.suspect_at IS NULL
      AND job.run_after IS NULL)
  THEN elementId(job) END AS stray
RETURN max(id) AS last, count(id) AS jobs, collect(stray) AS strays
"""
"""A page of all jobs in order of their ids: those whose label, lane or fence does not fit."""

ELEMENTS_OF: Final[LiteralString] = """
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX job:EmbedJob(id)
RETURN elementId(job) AS element
"""

READ_STRAYS: Final[LiteralString] = f"""
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $elements AS element
MATCH (job:EmbedJob) WHERE elementId(job) = element
RETURN element, now, job {{.*}} AS job,
  [name IN labels(job) WHERE name IN {_OWN}] = [{LABELS}[toStringOrNull(job.status)]] AS fits,
  job:EmbedProcessing AS was_leased
"""
"""By element id: a node of another program may have no id of ours yet."""

LOCK_STRAYS: Final[LiteralString] = """
UNWIND $elements AS element
MATCH (job:EmbedJob) WHERE elementId(job) = element
SET job._lock = $token
"""

FIND_TWINS: Final[LiteralString] = """
UNWIND $rows AS row
MATCH (twin:EmbedJob {entity_uid: row.entity_uid, model: row.model, version: row.version})
USING INDEX SEEK twin:EmbedJob(entity_uid, model, version)
WHERE elementId(twin) <> row.element
RETURN row.element AS element, twin.id AS id
"""
"""The jobs that already have the key which a stray gets when its version is a number."""

WRITE_ADOPTED: Final[LiteralString] = f"""
WITH {LABELS} AS labels
UNWIND $rows AS row
MATCH (job:EmbedJob) WHERE elementId(job) = row.element
REMOVE {STATE_LABELS}
SET job:$(labels[row.status]), job += row.properties
"""
"""Put locked jobs right; status, label and lane together."""
