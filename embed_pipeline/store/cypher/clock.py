"""The statements that notice when the server's clock is set back, and follow it."""

from typing import Final, LiteralString

READ_CLOCK: Final[LiteralString] = """
OPTIONAL MATCH (counters:EmbedCounters {name: $queue})
RETURN counters.clock AS last, coalesce($now, datetime.realtime().epochMillis) AS now
"""
"""The time at the last recovery, and the time now."""

NOTE_CLOCK: Final[LiteralString] = """
MATCH (counters:EmbedCounters {name: $queue})
SET counters._lock = $token
WITH counters, coalesce($now, datetime.realtime().epochMillis) AS now
SET counters.clock = now, counters.last_recovery_at = now
"""
"""Remember what time it is, and that expired leases were looked for, also by drains.

Like all about the counters the last statement of a transaction.
"""

PICK_LEASES_AHEAD: Final[LiteralString] = """
MATCH (job:EmbedProcessing)
WHERE job.lock_until > $now AND coalesce(job.heartbeat_at, job.started_at) > $now
RETURN job.id AS id LIMIT $limit
"""
"""Leases that were last confirmed at a time which has not come yet.

Looks at all leased jobs, but only when the clock has gone back; likewise for the retries.
"""

FOLLOW_LEASES: Final[LiteralString] = """
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id})
WHERE job.status = 'processing' AND coalesce(job.heartbeat_at, job.started_at) > $now
SET job.lock_until = $now + job.lock_until - coalesce(job.heartbeat_at, job.started_at),
    job.heartbeat_at = CASE WHEN job.heartbeat_at > $now THEN $now ELSE job.heartbeat_at END,
    job.started_at = CASE WHEN job.started_at > $now THEN $now ELSE job.started_at END
"""
"""Let locked leases end as late as if they had been confirmed now.

Invariant: no live lease ends earlier than its holder believes, and a dead one a lease from now.
"""

PICK_RETRIES_AHEAD: Final[LiteralString] = """
MATCH (job:EmbedPending)
WHERE job.run_after > $now + coalesce($delays[job.attempts], $longest)
RETURN job.id AS id LIMIT $limit
"""
"""Retries that would wait longer than the policy makes a job with their attempts wait."""

FOLLOW_RETRIES: Final[LiteralString] = """
UNWIND $ids AS id
MATCH (job:EmbedJob {id: id})
WHERE job.status = 'pending'
  AND job.run_after > $now + coalesce($delays[job.attempts], $longest)
SET job.run_after = $now + coalesce($delays[job.attempts], $longest)
"""
"""Let locked retries begin their wait now."""
