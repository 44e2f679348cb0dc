"""A queue in memory that keeps the same promises, for tests of what uses a queue.

The contract suite runs over it and over Neo4j, and a state machine compares the two step by step.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from embed_pipeline.domain.backlog import Backlog
from embed_pipeline.domain.backoff import RetryPolicy
from embed_pipeline.domain.breaker import Breaker, BreakerStatus, allowed_jobs, pause_after
from embed_pipeline.domain.coverage import Coverage, EntityReading, ReconcilePage, classify
from embed_pipeline.domain.errors import ErrorCategory, JobNotFoundError, TransitionRefusedError
from embed_pipeline.domain.fairness import Lane, slots_for_oldest, suspects_first
from embed_pipeline.domain.filters import JobFilter
from embed_pipeline.domain.job import Job, JobStatus, Lease, LeasedJob, NewJob
from embed_pipeline.domain.lifecycle import (
    MOVES,
    EnqueueOutcome,
    Existing,
    GiveBack,
    GiveUp,
    Move,
    after_expiry,
    after_failure,
    is_allowed,
    on_enqueue,
)
from embed_pipeline.domain.metrics import QueueState
from embed_pipeline.domain.rate_window import Grant, RateLimits, Window, followed, hold, take
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.results import (
    Beat,
    BulkReport,
    Completion,
    CompletionOutcome,
    EntityFate,
    Failure,
    FailureOutcome,
    LeaseBatch,
    LoadedEntity,
    RecoveredJob,
)
from embed_pipeline.domain.tally import Tally
from embed_pipeline.domain.text import fingerprint, memento_text

ZERO = timedelta(0)
BY_QUEUE = "queue"


@dataclass
class FakeClock:
    """A clock that only moves when it is told to."""

    now: datetime = field(default_factory=lambda: datetime(2030, 1, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def advance(self, duration: timedelta) -> None:
        self.now += duration


@dataclass
class FakeEntity:
    properties: dict[str, object]
    version: int
    vector: Sequence[float] | None = None
    vector_hash: str | None = None
    vector_model: str | None = None
    vector_version: int | None = None


@dataclass
class FakeQueue:
    """``JobStore``, ``QueueAdmin`` and ``QueueSwitch`` in one."""

    clock: FakeClock = field(default_factory=FakeClock)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    roll: Callable[[], float] = lambda: 0.0
    max_attempts: int = 3
    jobs: dict[str, Job] = field(default_factory=dict)
    entities: dict[str, FakeEntity] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    breaker: Breaker = field(default_factory=Breaker)
    paused: tuple[str, datetime] | None = None
    slots: int = 0
    turns: int = 0
    requests: dict[str, list[str]] = field(default_factory=dict)
    endings: dict[str, tuple[int, str]] = field(default_factory=dict)
    last_recovery: datetime | None = None
    last_seen: datetime | None = None
    moved: dict[str, int] = field(default_factory=dict)
    """Jobs for which another text was asked under this fence."""

    @property
    def now(self) -> datetime:
        return self.clock()

    def put_entity(self, uid: str, text: str = "", *, version: int = 1) -> str:
        properties = {"name": uid, "entityType": "test", "observations": [text]}
        entity = self.entities.setdefault(uid, FakeEntity(properties, version))
        entity.properties, entity.version = properties, version
        return self.hash_of(properties)

    def hash_of(self, properties: Mapping[str, object]) -> str:
        return fingerprint(memento_text)(properties)

    # the worker's side

    async def lease(
        self,
        *,
        owner: str,
        model: str,
        limit: int,
        duration: timedelta,
        lane: Lane = Lane.ANY,
        request: str | None = None,
    ) -> LeaseBatch:
        request = request or uuid4().hex
        if held := [i for i in self.requests.get(request, []) if self._is_held_by(i, request)]:
            return self._batch(held)
        if self.paused:
            return LeaseBatch(refusal=f"paused by {self.paused[0]}")
        allowed = allowed_jobs(self.breaker, self.now, limit)
        if allowed == 0:
            return LeaseBatch(refusal=f"breaker open: {self.breaker.reason}")
        ids = self._choose(model, lane, allowed)
        for i in ids:
            job = self.jobs[i]
            self.jobs[i] = replace(
                job,
                status=JobStatus.PROCESSING,
                attempts=job.attempts + 1,
                fence=job.fence + 1,
                lock_owner=owner,
                lock_until=self.now + duration,
                started_at=self.now,
                run_after=None,
            )
        if ids:
            self.turns += 1
            self.requests[request] = ids
            if self.breaker.status is not BreakerStatus.CLOSED:
                self.breaker = replace(
                    self.breaker, status=BreakerStatus.HALF_OPEN, probe_at=self.now + duration
                )
        return self._batch(ids)

    async def heartbeat(self, leases: Sequence[Lease], *, duration: timedelta) -> Beat:
        beat = await self.check(leases)
        for lease in beat.held:
            self._set(lease.job_id, lock_until=self.now + duration, heartbeat_at=self.now)
        self.counters["fenced"] += len(beat.lost) + len(beat.cancelled)
        return replace(beat, lock_until=self.now + duration if beat.held else None)

    async def check(self, leases: Sequence[Lease]) -> Beat:
        held = tuple(x for x in leases if self._holds(x))
        ended = tuple(x for x in leases if x not in held and self._is_cancelled(x))
        return Beat(held, ended, tuple(x for x in leases if x not in held and x not in ended))

    async def load(self, leases: Sequence[Lease]) -> list[LoadedEntity]:
        return [self._load(lease) for lease in leases]

    async def find_vectors(
        self, hashes: Sequence[str], *, model: str, dimensions: int
    ) -> Mapping[str, Sequence[float]]:
        found = [e for e in self.entities.values() if e.vector and e.vector_model == model]
        return {
            e.vector_hash: e.vector
            for e in found
            if e.vector_hash in hashes and e.vector and len(e.vector) == dimensions
            if e.vector_hash is not None
        }

    async def complete(self, rows: Sequence[Completion]) -> list[CompletionOutcome]:
        return [self._complete(row) for row in rows]

    async def fail(self, rows: Sequence[Failure]) -> list[FailureOutcome]:
        return [self._fail(row) for row in rows]

    async def release(self, leases: Sequence[Lease]) -> int:
        held = [x for x in leases if self._holds(x)]
        repeated = sum(self._ending(x) == "release" for x in leases)
        self.counters["fenced"] += sum(x not in held and self._ending(x) is None for x in leases)
        for lease in held:
            self._settle(lease, "release")
            self._back(lease.job_id, refund=1)
        self.counters["released"] += len(held)
        return len(held) + repeated

    async def recover_expired(self, *, limit: int, grace: timedelta = ZERO) -> list[RecoveredJob]:
        self._follow_clock()
        expired = [
            job
            for job in self.jobs.values()
            if job.lock_until is not None and job.lock_until < self.now - grace
        ]
        expired.sort(key=lambda job: (job.lock_until or self.now, job.id))
        return [self._recover(job) for job in expired[:limit]]

    async def recover_owner(self, owner: str) -> list[RecoveredJob]:
        return [self._recover(job) for job in self._owned(owner)]

    # everyone else's side

    async def enqueue(
        self, jobs: Sequence[NewJob], *, max_attempts: int | None = None
    ) -> list[EnqueueOutcome]:
        return [self._enqueue(wish, max_attempts or self.max_attempts) for wish in jobs]

    async def retry_failed(self, which: JobFilter, *, preview: bool = False) -> BulkReport:
        jobs = self._find(which, MOVES[Move.RETRY_FAILED][0])
        if which.categories is None:
            jobs = [j for j in jobs if j.error_category is not ErrorCategory.PERMANENT]
        if not preview:
            for job in jobs:
                self._reopen(job.id)
            self.counters["reopened"] += len(jobs)
        return _report(jobs, preview)

    async def cancel(
        self, which: JobFilter, *, by: str, reason: str = "", preview: bool = False
    ) -> BulkReport:
        jobs = self._find(which, MOVES[Move.CANCEL][0])
        if not preview:
            for job in jobs:
                self._cancel(job.id, by, reason)
            self.counters["cancelled"] += len(jobs)
        return _report(jobs, preview)

    async def cancel_job(self, job_id: str, *, by: str, reason: str = "") -> None:
        job = await self.job_status(job_id)
        if not is_allowed(Move.CANCEL, job.status):
            raise TransitionRefusedError(f"job {job_id} is {job.status}")
        self._cancel(job_id, by, reason)
        self.counters["cancelled"] += 1

    async def release_owner(self, owner: str) -> int:
        owned = self._owned(owner)
        for job in owned:
            self._back(job.id, refund=1)
        self.counters["released"] += len(owned)
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

    async def purge_terminal(self, *, retention: timedelta) -> int:
        old = [
            job
            for job in self.jobs.values()
            if job.processed_at is not None and job.processed_at < self.now - retention
        ]
        for job in old:
            del self.jobs[job.id]
            self.counters[f"deleted_{job.status}"] += 1
        return len(old)

    async def record_recovery(self) -> None:
        self.counters["recoveries"] += 1
        self.last_recovery = self.now

    async def backlog(self, model: str, *, most: int) -> Backlog:
        counts = await self.counts()
        mine = [
            job
            for job in self.jobs.values()
            if job.status is JobStatus.PENDING and job.model == model
        ]
        later = [job.run_after for job in mine if job.run_after and job.run_after > self.now]
        due = len(mine) - len(later)
        return Backlog(
            at=self.now,
            due=min(due, most),
            is_more=due > most,
            pending=counts[JobStatus.PENDING],
            processing=counts[JobStatus.PROCESSING],
            next_due=min(later, default=None),
            state=await self.state(),
        )

    @property
    def oldest_ended(self) -> timedelta | None:
        ended = [job.processed_at for job in self.jobs.values() if job.processed_at]
        return self.now - min(ended) if ended else None

    # the switch

    async def pause(self, *, by: str) -> None:
        self.paused = (by, self.now)

    async def resume(self) -> None:
        self.paused = None

    async def state(self) -> QueueState:
        by, since = self.paused or (None, None)
        return QueueState(self.breaker, self.paused is not None, by, since)

    async def open_breaker(self, reason: str) -> Breaker:
        is_news = self.breaker.status is not BreakerStatus.OPEN
        failures = self.breaker.failures + is_news
        self.breaker = Breaker(
            BreakerStatus.OPEN,
            redact(reason),
            self.breaker.since or self.now,
            self.now + pause_after(failures) if is_news else self.breaker.probe_at,
            failures,
        )
        return self.breaker

    async def close_breaker(self) -> None:
        self.breaker = Breaker()

    async def reconcile(self, model: str) -> ReconcilePage:
        """Compare every entity with its vector, and enqueue what does not fit."""
        tally = Tally()
        wishes: list[NewJob] = []
        for uid, entity in sorted(self.entities.items()):
            reading = self._reading(uid, entity, model)
            digest = self.hash_of(entity.properties)
            found = classify(reading, model=model, text_hash=digest, dimensions=None)
            tally.add(reading, found)
            if found is Coverage.CURRENT:
                continue
            is_lost = reading.job_status is JobStatus.COMPLETED
            wishes.append(NewJob(uid, model, entity.version, text_hash=digest, force=is_lost))
        outcomes = await self.enqueue(wishes) if wishes else []
        return tally.page(cursor=None, orphaned=0, enqueued=dict(Counter(outcomes)))

    def _reading(self, uid: str, entity: FakeEntity, model: str) -> EntityReading:
        key = (uid, model, entity.version)
        job = next((job for job in self.jobs.values() if _key(job) == key), None)
        return EntityReading(
            uid=uid,
            version=entity.version,
            has_vector=entity.vector is not None,
            dimensions=None if entity.vector is None else len(entity.vector),
            vector_model=entity.vector_model,
            vector_hash=entity.vector_hash,
            vector_version=entity.vector_version,
            job_status=job.status if job else None,
            entity_type=str(entity.properties["entityType"]),
            is_truncated=job is not None and bool(job.truncated),
        )

    # steps

    def _choose(self, model: str, lane: Lane, limit: int) -> list[str]:
        pending = [j for j in self.jobs.values() if j.status is JobStatus.PENDING]
        due = [j for j in pending if j.run_after and j.run_after <= self.now]
        for job in due:
            self._set(job.id, run_after=None)
        pending = [self.jobs[j.id] for j in pending if j.model == model]
        pending = [j for j in pending if j.run_after is None]
        suspects = sorted((j for j in pending if j.is_suspect), key=lambda j: j.queued_at)
        ready = sorted((j for j in pending if not j.is_suspect), key=lambda j: j.queued_at)
        if suspects and suspects_first(self.turns, lane):
            return [suspects[0].id]
        if lane is Lane.SUSPECT:
            return []
        urgent = sorted(ready, key=lambda j: -j.priority)
        oldest = ready[: slots_for_oldest(self.slots, limit)]
        chosen = list(dict.fromkeys(j.id for j in [*oldest, *urgent]))[:limit]
        if chosen:
            self.slots += len(chosen)
            place = {j.id: n for n, j in enumerate(urgent[:limit])}
            return sorted(chosen, key=lambda i: place.get(i, limit))
        return [suspects[0].id] if suspects and lane is Lane.ANY else []

    def _load(self, lease: Lease) -> LoadedEntity:
        if not self._holds(lease):
            self.counters["fenced"] += 1
            return LoadedEntity(lease, EntityFate.FENCED)
        entity, job = self.entities.get(lease.entity_uid), self.jobs[lease.job_id]
        if entity is not None and entity.version == job.version:
            return LoadedEntity(lease, EntityFate.CURRENT, entity.properties)
        fate = EntityFate.GONE if entity is None else EntityFate.SUPERSEDED
        self._cancel(job.id, BY_QUEUE, _reason(entity))
        self.counters["superseded"] += 1
        return LoadedEntity(lease, fate)

    def _complete(self, row: Completion) -> CompletionOutcome:
        lease = row.lease
        if not self._holds(lease):
            if (ending := self._ending(lease)) in frozenset(CompletionOutcome):
                return CompletionOutcome(ending)
            self.counters["fenced"] += 1
            return CompletionOutcome.FENCED
        entity, job = self.entities.get(lease.entity_uid), self.jobs[lease.job_id]
        outcome = CompletionOutcome.COMPLETED
        if entity is None:
            outcome = CompletionOutcome.GONE
        elif entity.version != job.version:
            outcome = CompletionOutcome.SUPERSEDED
        elif self.hash_of(entity.properties) != row.text_hash:
            outcome = CompletionOutcome.MOVED
        if outcome is not CompletionOutcome.COMPLETED:
            self._settle(lease, outcome)
        if outcome is CompletionOutcome.MOVED:
            self.counters["moved"] += 1
            self._back(job.id, refund=1)
        elif outcome is CompletionOutcome.COMPLETED and entity is not None:
            entity.vector, entity.vector_hash = row.vector, row.text_hash
            entity.vector_model, entity.vector_version = job.model, job.version
            self._end(
                job.id,
                JobStatus.COMPLETED,
                text_hash=row.text_hash,
                tokens=row.tokens,
                tokens_in=row.tokens_in,
                truncated=row.is_truncated or None,
            )
        else:
            self.counters["superseded"] += 1
            self._cancel(job.id, BY_QUEUE, _reason(entity))
        return outcome

    def _fail(self, row: Failure) -> FailureOutcome:
        lease = row.lease
        if not self._holds(lease):
            if (ending := self._ending(lease)) in frozenset(FailureOutcome):
                return FailureOutcome(ending)
            self.counters["fenced"] += 1
            return FailureOutcome.FENCED
        job = self.jobs[lease.job_id]
        decision = after_failure(
            row.category,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            policy=self.retry,
            roll=self.roll(),
            is_pinned=row.is_pinned,
        )
        if isinstance(decision, GiveUp) and row.text_hash and job.text_hash:
            decision = decision if row.text_hash == job.text_hash else GiveBack()
        self._set(job.id, error=redact(row.message), error_category=row.category)
        if isinstance(decision, GiveUp):
            self._settle(lease, FailureOutcome.FAILED)
            self.counters["exhausted"] += job.attempts >= job.max_attempts
            self._end(job.id, JobStatus.FAILED, text_hash=row.text_hash or job.text_hash)
            return FailureOutcome.FAILED
        if isinstance(decision, GiveBack):
            self._settle(lease, FailureOutcome.GIVEN_BACK)
            self.counters["given_back"] += 1
            self._set(job.id, text_hash=row.text_hash or job.text_hash)
            self._back(job.id, refund=1)
            return FailureOutcome.GIVEN_BACK
        self._settle(lease, FailureOutcome.RETRY)
        self.counters["retried"] += 1
        self._back(job.id, delay=decision.delay)
        return FailureOutcome.RETRY

    def _follow_clock(self) -> None:
        """Let what was to come begin now if the clock has gone back."""
        is_back, self.last_seen = self.last_seen and self.now < self.last_seen, self.now
        if not is_back:
            return
        probe_at = self.now + pause_after(self.breaker.failures)
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
        )
        self._set(job.id, expiries=job.expiries + 1)
        self.counters["recovered"] += 1
        if isinstance(decision, GiveUp) and self.moved.get(job.id) == job.fence:
            self._back(job.id, refund=1)
        elif isinstance(decision, GiveUp):
            self.counters["exhausted"] += 1
            error = job.error or f"lease expired on {job.lock_owner}"
            category = job.error_category or ErrorCategory.TRANSIENT
            self._end(job.id, JobStatus.FAILED, error=error, error_category=category)
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

    def _enqueue(self, wish: NewJob, max_attempts: int) -> EnqueueOutcome:
        job = next((j for j in self.jobs.values() if _key(j) == wish.key), None)
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
            )
            self._supersede(wish)
            return EnqueueOutcome.CREATED
        by_operator = job.cancelled_by not in (None, BY_QUEUE)
        outcome = on_enqueue(Existing(job.status, job.priority, job.text_hash, by_operator), wish)
        if outcome is EnqueueOutcome.PROMOTED:
            self._set(job.id, priority=wish.priority)
        elif outcome is EnqueueOutcome.REVIVED:
            self.counters["revived"] += 1
            self._reopen(
                job.id,
                priority=max(wish.priority, job.priority),
                text_hash=wish.text_hash or job.text_hash,
                max_attempts=max_attempts,
            )
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

    def _supersede(self, wish: NewJob) -> None:
        for job in list(self.jobs.values()):
            is_older = _key(job)[:2] == wish.key[:2] and job.version < wish.version
            if is_older and job.status is JobStatus.PENDING:
                self.counters["superseded"] += 1
                self._cancel(job.id, BY_QUEUE, f"superseded by version {wish.version}")

    def _set(self, job_id: str, **fields: object) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], **fields)

    def _back(self, job_id: str, *, refund: int = 0, delay: timedelta = ZERO) -> None:
        job = self.jobs[job_id]
        self._set(
            job_id,
            status=JobStatus.PENDING,
            started_at=None,
            attempts=job.attempts - refund,
            run_after=self.now + delay if delay else None,
            **_unlocked(job),
        )

    def _end(self, job_id: str, status: JobStatus, **fields: object) -> None:
        job = self.jobs[job_id]
        unlocked = _unlocked(job)
        self._set(
            job_id, status=status, processed_at=self.now, run_after=None, **unlocked, **fields
        )

    def _cancel(self, job_id: str, by: str, reason: str) -> None:
        self._end(job_id, JobStatus.CANCELLED, cancelled_by=by, error=reason or None)

    def _reopen(self, job_id: str, **fields: object) -> None:
        self._set(
            job_id,
            status=JobStatus.PENDING,
            attempts=0,
            expiries=0,
            queued_at=self.now,
            processed_at=None,
            error=None,
            error_category=None,
            error_stack=None,
            error_history=(),
            cancelled_by=None,
            **fields,
        )

    def _batch(self, ids: Sequence[str]) -> LeaseBatch:
        lock_until = max((self.jobs[i].lock_until or self.now for i in ids), default=None)
        return LeaseBatch(tuple(self._leased(i) for i in ids), lock_until=lock_until)

    def _leased(self, job_id: str) -> LeasedJob:
        job = self.jobs[job_id]
        return LeasedJob(
            Lease(job.id, job.entity_uid, job.model, job.version, job.lock_owner or "", job.fence),
            job.attempts,
            job.max_attempts,
            job.is_suspect,
        )

    def _is_held_by(self, job_id: str, request: str) -> bool:
        last = [r for r, ids in self.requests.items() if job_id in ids][-1:]
        is_live = job_id in self.jobs and self.jobs[job_id].status is JobStatus.PROCESSING
        return is_live and last == [request]

    def _holds(self, lease: Lease) -> bool:
        job = self.jobs.get(lease.job_id)
        return (
            job is not None
            and job.status is JobStatus.PROCESSING
            and (job.fence, job.lock_owner) == (lease.fence, lease.owner)
        )

    def _is_cancelled(self, lease: Lease) -> bool:
        job = self.jobs.get(lease.job_id)
        return job is not None and job.fence == lease.fence and job.status is JobStatus.CANCELLED

    def _settle(self, lease: Lease, ending: str) -> None:
        self.endings[lease.job_id] = (lease.fence, str(ending))

    def _ending(self, lease: Lease) -> str | None:
        job = self.jobs.get(lease.job_id)
        if job is None:
            return None
        if job.status is JobStatus.COMPLETED:
            return JobStatus.COMPLETED.value if job.fence == lease.fence else None
        fence, ending = self.endings.get(job.id, (0, ""))
        return ending if fence == lease.fence else None

    def _owned(self, owner: str) -> list[Job]:
        return [
            job
            for job in self.jobs.values()
            if job.lock_owner and f"{job.lock_owner}/".startswith(f"{owner}/")
        ]

    def _find(
        self, which: JobFilter, among: frozenset[JobStatus] = frozenset(JobStatus)
    ) -> list[Job]:
        def matches(job: Job) -> bool:
            return all(
                (
                    which.ids is None or job.id in which.ids,
                    job.status in (among if which.statuses is None else among & which.statuses),
                    which.model is None or job.model == which.model,
                    which.entity_uids is None or job.entity_uid in which.entity_uids,
                    which.categories is None or job.error_category in which.categories,
                    which.owner is None or job in self._owned(which.owner),
                    which.created_before is None or job.created_at < which.created_before,
                    which.ended_before is None
                    or (job.processed_at is not None and job.processed_at < which.ended_before),
                    which.has_lock is None or (job.lock_until is not None) == which.has_lock,
                )
            )

        return sorted(filter(matches, self.jobs.values()), key=lambda job: job.id)


@dataclass
class FakeRateLimiter:
    """One limit for everybody in this process."""

    clock: FakeClock = field(default_factory=FakeClock)
    limits: RateLimits = field(default_factory=RateLimits)
    window: Window = field(default_factory=Window)

    async def acquire(self, *, tokens: int = 0) -> Grant:
        self._follow()
        self.window, grant = take(self.window, self.limits, now_ms=self._now_ms, tokens=tokens)
        return grant

    async def peek(self) -> Grant:
        self._follow()
        return take(self.window, self.limits, now_ms=self._now_ms)[1]

    async def hold(self, pause: timedelta) -> None:
        self._follow()
        pause_ms = pause // timedelta(milliseconds=1)
        self.window = hold(self.window, pause_ms=pause_ms, now_ms=self._now_ms)

    def _follow(self) -> None:
        self.window = followed(self.window, self.limits, now_ms=self._now_ms)

    @property
    def _now_ms(self) -> int:
        return int(self.clock().timestamp() * 1000)


def _unlocked(job: Job) -> dict[str, object]:
    owner = job.lock_owner or job.last_owner
    return {
        "lock_owner": None,
        "lock_until": None,
        "heartbeat_at": None,
        "last_owner": owner,
    }


def _key(job: Job) -> tuple[str, str, int]:
    return (job.entity_uid, job.model, job.version)


def _reason(entity: FakeEntity | None) -> str:
    return "entity deleted" if entity is None else f"superseded by version {entity.version}"


def _report(jobs: Sequence[Job], is_preview: bool) -> BulkReport:
    counts = Counter(job.status for job in jobs)
    return BulkReport(len(jobs), tuple(job.id for job in jobs), is_preview, counts)
