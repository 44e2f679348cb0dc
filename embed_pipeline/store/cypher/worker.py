"""The statements of a worker.

Neo4j reads are read-committed and the planner keeps values that an index seek has read, so a guard
beside a write is worth nothing by itself. Every operation here is one transaction of separate
statements: lock, read, decide, write. What is read after ``LOCK_*`` cannot change any more, on any
runtime. Locks are taken in one order everywhere (queue, entities by key, jobs by id, counters):
measured, 0 deadlocks against 112 of 200 transactions without an order.

``$now`` is null in production: the server's clock rules, and it is asked after the lock, because
``timestamp()`` stands still while a statement waits.

``CYPHER replan=skip``: a queue is full in the morning and empty at noon, and Neo4j makes a new plan
whenever its statistics have moved. Measured, that was a seventh of the server's work. A plan that
is kept must be right for every queue, so each of these statements names its index.
"""

from typing import Final, LiteralString

from embed_pipeline.store.cypher.adopt import LABELS, STATE_LABELS
from embed_pipeline.store.cypher.lanes import enter_lane

LOCK_QUEUE: Final[LiteralString] = """
CYPHER replan=skip
MATCH (queue:EmbedQueue {name: $queue})
SET queue._lock = $token
RETURN queue.name AS name
"""
"""Hold the mutex of all leases.

8 workers leased 1,134 jobs/s with it and 290 without, where three calls in four came back empty
because all fight for the head of the queue. It also makes a repeated request wait for the one in
flight, so that it finds those jobs instead of taking others.
"""

READ_QUEUE: Final[LiteralString] = """
CYPHER replan=skip
MATCH (queue:EmbedQueue {name: $queue})
WITH queue, coalesce($now, datetime.realtime().epochMillis) AS now
RETURN queue {.*} AS queue, now,
  COLLECT {
    MATCH (job:EmbedPending) USING INDEX job:EmbedPending(run_after)
    WHERE job.run_after <= now
    RETURN job.id ORDER BY job.run_after LIMIT $sweep
  } AS due,
  COLLECT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, suspect_at)
    WHERE job.model = $model AND job.suspect_at IS NOT NULL
    RETURN [job.id, job.attempts + 1 >= job.max_attempts]
    ORDER BY job.model, job.suspect_at LIMIT $suspects
  } AS suspects,
  COLLECT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, ready_at)
    WHERE job.model = $model AND job.ready_at IS NOT NULL
    RETURN job.id ORDER BY job.model, job.ready_at LIMIT $oldest
  } AS oldest,
  COLLECT {
    MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, urgency, ready_at)
    WHERE job.model = $model AND job.urgency IS NOT NULL AND job.ready_at IS NOT NULL
    RETURN job.id ORDER BY job.model, job.urgency, job.ready_at LIMIT $limit
  } AS urgent
"""
"""Read the head of every lane of a model in index order: cost is that of the batch.

A worker has one model, and a vector of another one must never get its name. Retries whose time has
come enter the lanes of all models: the first lease may do that.

The hints are needed: for a short queue the planner takes the other index and sorts, and that plan
may still be in its cache when the queue has become long. SEEK, because with a plain hint it may
scan the index for all models while its statistics still call it empty.
"""

_LEASED: Final[LiteralString] = """\
RETURN collect([job.id, job.entity_uid, job.version, job.fence, job.attempts, job.max_attempts,
  coalesce(job.expiries, 0)]) AS jobs, max(job.lock_until) AS lock_until
"""
"""What a worker has to know of its leases, and until when they last; ``to_leased_job`` reads it."""

FIND_REQUEST: Final[LiteralString] = (
    """
MATCH (job:EmbedProcessing) WHERE job.lease_request = $request
"""
    + _LEASED
)
"""The jobs that a lease took whose answer was lost.

Asked only when a request is repeated, so it may look at all leased jobs; an index would cost every
lease and every completion.
"""

ENTER_LANES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX job:EmbedJob(id)
WHERE job.status = 'pending' AND job.run_after IS NOT NULL
WITH job, job.run_after AS run_after, $now AS now
SET""" + enter_lane(
    priority="job.priority",
    queued_at="job.queued_at",
    expiries="job.expiries",
    run_after="run_after",
)
"""Make retries whose time has come leasable; the jobs are locked.

Without the hint each id was looked for among all delayed jobs: 4,020,855 hits for 100 of 20,000.
"""

CLAIM_JOBS: Final[LiteralString] = (
    """
CYPHER replan=skip
MATCH (queue:EmbedQueue {name: $queue})
SET queue.slots = queue.slots + $slots, queue.turns = queue.turns + 1
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX job:EmbedJob(id)
WHERE job.status = 'pending'
SET job:EmbedProcessing,
    job.status = 'processing',
    job.attempts = job.attempts + 1,
    job.fence = job.fence + 1,
    job.lock_owner = $owner,
    job.lock_until = now + $duration,
    job.started_at = now,
    job.heartbeat_at = now,
    job.lease_request = $request
REMOVE job:EmbedPending:EmbedCompleted:EmbedFailed:EmbedCancelled
"""
    + _LEASED
)
"""Lease the picked jobs. The properties of its lane stay: without the label no index has them.

Invariant: a job is processing under at most one fence. Queue and jobs are locked, so the status
read here is the one that is changed.
"""

LOCK_JOBS: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX job:EmbedJob(id)
SET job._lock = $token
"""
"""Hold the jobs until the end of the transaction; ``$ids`` are sorted.

The value is never null and never one of a guarded property: a removal takes no lock where the key
is new to the store, and a self-assignment writes back what it read before the lock.
"""

READ_JOBS: Final[LiteralString] = """
CYPHER replan=skip
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX job:EmbedJob(id)
RETURN collect(job {.*}) AS jobs, coalesce(max(now), 0) AS now
"""
"""Read jobs that this transaction has locked, and the time after the wait for them.

One row for all: the driver spends more on a row than on what is in it.
"""

CHANGE_JOBS: Final[LiteralString] = f"""
CYPHER replan=skip
WITH {LABELS} AS labels
UNWIND $rows AS row
MATCH (job:EmbedJob {{id: row.id}}) USING INDEX job:EmbedJob(id)
REMOVE {STATE_LABELS}
SET job:$(labels[row.after]), job += row.properties
"""
"""Write what was decided about locked jobs; status, label and lane move together.

Whatever label the job had goes: another program may have changed its status without it.
"""

EXTEND_LEASES: Final[LiteralString] = """
CYPHER replan=skip
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $leases AS lease
MATCH (job:EmbedJob {id: lease.id}) USING INDEX job:EmbedJob(id)
WHERE job.status = 'processing' AND job.fence = lease.fence AND job.lock_owner = lease.owner
SET job.lock_until = now + $duration, job.heartbeat_at = now
RETURN count(job) AS jobs, max(job.lock_until) AS lock_until
"""
"""Extend locked leases. Invariant: only the current fence, so a recovered job stays recovered."""

COUNT_HELD: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $leases AS lease
MATCH (job:EmbedJob {id: lease.id}) USING INDEX job:EmbedJob(id)
WHERE job.fence = lease.fence AND job.lock_owner = lease.owner
RETURN count(job) AS jobs
"""
"""Say how many leases are held; nearly always all, and a row for each would cost ten times more.
"""

FIND_FORCED: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id}) USING INDEX job:EmbedJob(id)
WHERE job.forced_fence IS NOT NULL
RETURN collect(job.id) AS ids
"""
"""Which jobs are to ask the provider although the graph has a vector of their text.

Asked only where it has one: a property more in every lease would cost all of them.
"""

READ_LEASES: Final[LiteralString] = """
UNWIND $leases AS lease
MATCH (job:EmbedJob {id: lease.id})
RETURN job.id AS id, job.status AS status, job.fence AS fence, job.lock_owner AS owner,
  job.last_owner AS last_owner, job.settled_as AS settled_as, job.settled_fence AS settled_fence
"""
"""Look at leases; takes no lock, so the answer may be old when it arrives."""

FINISH_JOBS: Final[LiteralString] = """
CYPHER replan=skip
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $rows AS row
MATCH (job:EmbedJob {id: row.id}) USING INDEX job:EmbedJob(id)
WHERE job.status = 'processing' AND job.fence = row.fence AND job.lock_owner = row.owner
SET job:EmbedCompleted, job.status = 'completed', job.processed_at = now,
    job.lock_owner = null, job.lock_until = null, job.heartbeat_at = null,
    job.last_owner = row.owner,
    job.text_hash = row.text_hash, job.tokens = row.tokens,
    job.pieces = row.pieces
REMOVE job:EmbedPending:EmbedProcessing:EmbedFailed:EmbedCancelled
RETURN count(job) AS jobs
"""
"""Complete locked jobs. Invariant: only the current fence, and together with the vector."""

PICK_EXPIRED: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) AS now
MATCH (job:EmbedProcessing) WHERE job.lock_until < now - $grace
RETURN job.id AS id, elementId(job) AS element,
  coalesce(job.status = 'processing', false) AS is_leased
ORDER BY job.lock_until LIMIT $limit
"""
"""Candidates for recovery, oldest first; lock and read again before acting on one."""

PICK_OWNED: Final[LiteralString] = """
MATCH (job:EmbedProcessing)
WHERE job.lock_owner = $owner OR job.lock_owner STARTS WITH $owner + '/'
RETURN job.id AS id LIMIT $limit
"""
"""Jobs of an owner or of all owners of a run; lock and read again before acting on one.

Looks at all leased jobs: rare, and cheaper than an index that every lease and completion writes.
"""

ADD_COUNTERS: Final[LiteralString] = """
MATCH (counters:EmbedCounters {name: $queue})
SET counters._lock = $token
SET counters.receipts = [$token] + coalesce(counters.receipts, [])[0..99]
WITH counters
UNWIND keys($counts) AS key
SET counters[key] = coalesce(counters[key], 0) + $counts[key]
"""
"""Count events in the transaction they happen in, and leave its receipt.

Always its last statement, for the lock order.

Only rare events are counted here: a commit that updates the vector index takes long, and all
completions would queue up behind this node.
"""

LOCK_COUNTERS: Final[LiteralString] = """
MATCH (counters:EmbedCounters {name: $queue})
SET counters._lock = $lock
"""
"""Wait for a commit that may still be under way."""

FIND_RECEIPT: Final[LiteralString] = """
MATCH (counters:EmbedCounters {name: $queue})
RETURN $token IN coalesce(counters.receipts, []) AS found
"""
"""Say whether the transaction with this token was committed; the counters are locked."""
