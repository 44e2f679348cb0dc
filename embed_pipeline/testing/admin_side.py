"""Everyone else's side of a queue in memory, and its switch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from embed_pipeline.domain.audit import OperatorAction
from embed_pipeline.domain.breaker import (
    Breaker,
    opened,
)
from embed_pipeline.domain.errors import ErrorCategory, JobNotFoundError, TransitionRefusedError
from embed_pipeline.domain.job import Job, JobFilter, JobStatus, NewJob
from embed_pipeline.domain.lifecycle import (
    MOVES,
    EnqueueOutcome,
    Existing,
    Move,
    is_allowed,
    on_enqueue,
)
from embed_pipeline.domain.metrics import Backlog
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.results import BulkReport, retention_in_words
from embed_pipeline.testing.state import BY_QUEUE, FakeState, key_of


class FakeAdminSide(FakeState):
    """Enqueue, inspect, cancel, retry, purge; ``QueueSwitch``."""

    async def enqueue(
        self, jobs: Sequence[NewJob], *, max_attempts: int | None = None
    ) -> list[EnqueueOutcome]:
        outcomes = [self._enqueue(wish, max_attempts or self.max_attempts) for wish in jobs]
        if forced := tuple(job.entity_uid for job in jobs if job.force):
            changed = sum(outcome is not EnqueueOutcome.PRESENT for outcome in outcomes)
            self._note(OperatorAction.FORCE, JobFilter(entity_uids=forced), changed)
        return outcomes

    async def retry_failed(self, which: JobFilter, *, preview: bool = False) -> BulkReport:
        jobs = self._find(which, MOVES[Move.RETRY_FAILED][0])
        if which.categories is None:
            jobs = [j for j in jobs if j.error_category is not ErrorCategory.PERMANENT]
        if not preview:
            for job in jobs:
                self._reopen(job.id, error_history=job.error_history)
            self.counters["reopened"] += len(jobs)
            self._note(OperatorAction.RETRY, which, len(jobs))
        return _report(jobs, preview)

    async def cancel(
        self, which: JobFilter, *, by: str, reason: str = "", preview: bool = False
    ) -> BulkReport:
        jobs = self._find(which, MOVES[Move.CANCEL][0])
        if not preview:
            for job in jobs:
                self._cancel(job.id, by, reason)
            self.counters["cancelled"] += len(jobs)
            self._note(OperatorAction.CANCEL, which, len(jobs), reason=reason)
        return _report(jobs, preview)

    async def cancel_job(self, job_id: str, *, by: str, reason: str = "") -> None:
        job = await self.job_status(job_id)
        if not is_allowed(Move.CANCEL, job.status):
            raise TransitionRefusedError(f"job {job_id} is {job.status}")
        self._cancel(job_id, by, reason)
        self.counters["cancelled"] += 1
        self._note(OperatorAction.CANCEL, JobFilter(ids=(job_id,)), 1, reason=reason)

    async def release_owner(self, owner: str) -> int:
        owned = self._owned(owner)
        for job in owned:
            self._back(job.id, refund=1)
        self.counters["released"] += len(owned)
        self._note(OperatorAction.RELEASE, JobFilter(owner=owner), len(owned))
        return len(owned)

    async def job_status(self, job_id: str) -> Job:
        if job_id not in self.jobs:
            raise JobNotFoundError(f"there is no job {job_id}")
        return self.jobs[job_id]

    async def find_jobs(
        self, which: JobFilter, *, limit: int = 100, after: str | None = None
    ) -> list[Job]:
        return [j for j in self._find(which) if j.id > (after or "")][:limit]

    async def counts(self) -> Mapping[JobStatus, int]:
        tally = Counter(job.status for job in self.jobs.values())
        return {status: tally[status] for status in JobStatus}

    async def backlog(self, model: str, *, most: int) -> Backlog:
        counts = await self.counts()
        mine = [
            job
            for job in self.jobs.values()
            if job.status is JobStatus.PENDING and job.model == model
        ]
        later = [job.run_after for job in mine if job.run_after and job.run_after > self.now]
        since = [
            job.run_after or job.queued_at
            for job in mine
            if not (job.run_after and job.run_after > self.now)
        ]
        due = len(since)
        return Backlog(
            at=self.now,
            due=min(due, most),
            is_more=due > most,
            pending=counts[JobStatus.PENDING],
            processing=counts[JobStatus.PROCESSING],
            next_due=min(later, default=None),
            state=await self.state(),
            oldest_due=self.now - min(since) if since else None,
        )

    @property
    def oldest_ended(self) -> timedelta | None:
        ended = [job.processed_at for job in self.jobs.values() if job.processed_at]
        return self.now - min(ended) if ended else None

    async def purge_terminal(self, *, retention: Mapping[JobStatus, timedelta]) -> int:
        old = [
            job
            for job in self.jobs.values()
            if job.processed_at is not None and job.processed_at < self.now - retention[job.status]
        ]
        for job in old:
            del self.jobs[job.id]
            self.counters[f"deleted_{job.status}"] += 1
        asked = f"ended more than {retention_in_words(retention)} ago"
        self._record(OperatorAction.PURGE, asked, len(old))
        return len(old)

    async def purge_actions(self, *, retention: timedelta) -> int:
        old = [entry for entry in self.actions if entry.at < self.now - retention]
        self.actions = [entry for entry in self.actions if entry not in old]
        return len(old)

    async def pause(self, *, by: str) -> None:
        self.paused = (redact(by), self.now)
        self._record(OperatorAction.PAUSE, "", 1)

    async def resume(self, *, close_breaker: bool = False) -> None:
        self.paused = None
        if close_breaker:
            self.breaker = Breaker()
        self._record(OperatorAction.RESUME, "close breaker" if close_breaker else "", 1)

    async def open_breaker(self, reason: str, *, is_outage: bool = False) -> Breaker:
        self.breaker = opened(self.breaker, reason, self.now, is_outage=is_outage, roll=self.roll())
        return self.breaker

    async def close_breaker(self) -> None:
        self.breaker = Breaker()

    def _enqueue(self, wish: NewJob, max_attempts: int) -> EnqueueOutcome:
        job = next((j for j in self.jobs.values() if key_of(j) == wish.key), None)
        if job is None:
            id_ = str(uuid4())
            self.jobs[id_] = Job(
                id=id_,
                entity_uid=wish.entity_uid,
                model=wish.model,
                version=wish.version,
                status=JobStatus.PENDING,
                priority=wish.priority,
                attempts=0,
                max_attempts=max_attempts,
                fence=0,
                created_at=self.now,
                queued_at=self.now,
                text_hash=wish.text_hash,
                run_after=self._run_after(wish),
            )
            if wish.delay is not None:
                self.put_off.add(id_)
            self._supersede(wish)
            if wish.force:
                self.forced[id_] = 0
            return EnqueueOutcome.CREATED
        by_operator = job.cancelled_by not in (None, BY_QUEUE)
        was_put_off = job.id in self.put_off
        existing = Existing(job.status, job.priority, job.text_hash, by_operator, was_put_off)
        outcome = on_enqueue(existing, wish)
        if outcome is EnqueueOutcome.REVIVED:
            self.forced.pop(job.id, None)
        if wish.force:
            self.forced[job.id] = job.fence
        if outcome is EnqueueOutcome.PROMOTED:
            run_after = None if was_put_off and job.attempts == 0 else job.run_after
            self._set(job.id, priority=wish.priority, run_after=run_after)
            self.put_off.discard(job.id)
        elif outcome is EnqueueOutcome.REVIVED:
            self.counters["revived"] += 1
            is_free = was_put_off or wish.delay is not None
            self._reopen(
                job.id,
                priority=wish.priority if is_free else max(wish.priority, job.priority),
                text_hash=wish.text_hash or job.text_hash,
                max_attempts=max_attempts,
                run_after=self._run_after(wish),
            )
            if wish.delay is not None:
                self.put_off.add(job.id)
            self._supersede(wish)
        elif (
            outcome is EnqueueOutcome.PRESENT
            and wish.text_hash
            and job.status is not JobStatus.PENDING
            and (job.status is JobStatus.PROCESSING or job.text_hash is None)
        ):
            if job.status is JobStatus.PROCESSING and job.text_hash != wish.text_hash:
                self.moved[job.id] = job.fence
            self._set(job.id, text_hash=wish.text_hash)
        return outcome

    def _run_after(self, wish: NewJob) -> datetime | None:
        return self.now + wish.delay if wish.delay else None


def _report(jobs: Sequence[Job], is_preview: bool) -> BulkReport:
    counts = Counter(job.status for job in jobs)
    return BulkReport(len(jobs), tuple(job.id for job in jobs), is_preview, counts)
