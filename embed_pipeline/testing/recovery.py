"""Recovery of a queue in memory."""

from dataclasses import replace
from datetime import timedelta

from embed_pipeline.domain.audit import OperatorAction
from embed_pipeline.domain.batch import is_batch
from embed_pipeline.domain.breaker import (
    pause_after,
)
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import Job, JobFilter, JobStatus
from embed_pipeline.domain.lifecycle import (
    GiveBack,
    GiveUp,
    after_expiry,
)
from embed_pipeline.domain.results import (
    RecoveredJob,
)
from embed_pipeline.testing.state import ZERO, FakeState


class FakeRecovery(FakeState):
    """Takes leases away."""

    async def recover_expired(self, *, limit: int, grace: timedelta = ZERO) -> list[RecoveredJob]:
        self._follow_clock()
        self.last_recovery = self.now
        expired = await self.find_expired(limit=limit, grace=grace)
        expired.sort(key=lambda job: (job.lock_until or self.now, job.id))
        return [self._recover(job) for job in expired[:limit]]

    async def recover_owner(self, owner: str) -> list[RecoveredJob]:
        recovered = [self._recover(job) for job in self._owned(owner)]
        self._note(OperatorAction.RECOVER, JobFilter(owner=owner), len(recovered))
        return recovered

    async def find_expired(self, *, limit: int = 100, grace: timedelta = ZERO) -> list[Job]:
        expired = [
            (job.lock_until, job.id, job)
            for job in self.jobs.values()
            if job.lock_until is not None and job.lock_until < self.now - grace
        ]
        return [job for *_, job in sorted(expired, key=lambda found: found[:2])][:limit]

    async def record_recovery(self) -> None:
        self.counters["recoveries"] += 1

    def _follow_clock(self) -> None:
        """Move future times to now if the clock has gone back."""
        is_back, self.last_seen = self.last_seen and self.now < self.last_seen, self.now
        if not is_back:
            return
        probe_at = self.now + pause_after(self.breaker.failures, is_outage=self.breaker.is_outage)
        if self.breaker.probe_at is not None and self.breaker.probe_at > probe_at:
            self.breaker = replace(self.breaker, probe_at=probe_at)
        for job in list(self.jobs.values()):
            confirmed = job.heartbeat_at or job.started_at
            due = self.now + self.retry.delay(job.attempts, 0.0)
            if job.lock_until is not None and confirmed is not None and confirmed > self.now:
                self._set(
                    job.id,
                    lock_until=self.now + (job.lock_until - confirmed),
                    heartbeat_at=min(job.heartbeat_at, self.now) if job.heartbeat_at else None,
                    started_at=min(job.started_at or self.now, self.now),
                )
            elif job.run_after is not None and job.run_after > due:
                self._set(job.id, run_after=due)

    def _recover(self, job: Job) -> RecoveredJob:
        decision = after_expiry(
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            expiries=job.expiries + 1,
            policy=self.retry,
            roll=self.roll(),
            is_moved=self.moved.get(job.id) == job.fence,
            is_batch=is_batch(job.lock_owner),
        )
        self._set(job.id, expiries=job.expiries + (not is_batch(job.lock_owner)))
        self.counters["recovered"] += 1
        if isinstance(decision, GiveBack):
            self._back(job.id, refund=1)
        elif isinstance(decision, GiveUp):
            self.counters["exhausted"] += 1
            error = job.error or f"lease expired on {job.lock_owner}"
            category = job.error_category or ErrorCategory.TRANSIENT
            history = job.error_history or self._history(job, error, category)
            self._end(
                job.id,
                JobStatus.FAILED,
                error=error,
                error_category=category,
                error_history=history,
            )
        else:
            self._back(job.id, delay=decision.delay)
        return RecoveredJob(
            job.id,
            job.entity_uid,
            job.lock_owner,
            job.heartbeat_at or job.started_at,
            job.lock_until or self.now,
            self.jobs[job.id].status,
            job.attempts,
        )
