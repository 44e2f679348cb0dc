"""A queue in memory that keeps the same promises, for tests of what uses a queue.

The contract suite runs over it and over Neo4j, and a state machine compares the two step by step.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from embed_pipeline.domain.audit import AuditEntry, Operator, OperatorAction, describe_filter
from embed_pipeline.domain.batch import is_batch
from embed_pipeline.domain.breaker import (
    PROBE_LASTS,
    Breaker,
    BreakerStatus,
    allowed_jobs,
    opened,
    pause_after,
)
from embed_pipeline.domain.budget import corrected
from embed_pipeline.domain.coverage import Coverage, ReconcilePage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory, JobNotFoundError, TransitionRefusedError
from embed_pipeline.domain.explanation import Explanation, why_not
from embed_pipeline.domain.fairness import Lane, group_of, slots_for_oldest, suspects_first
from embed_pipeline.domain.holds import Allowance, Hold, Origin
from embed_pipeline.domain.job import Job, JobFilter, JobStatus, Lease, LeasedJob, NewJob
from embed_pipeline.domain.judging import EntityReading, classify
from embed_pipeline.domain.lifecycle import (
    MOVES,
    EnqueueOutcome,
    Existing,
    GiveBack,
    GiveUp,
    Move,
    RetryPolicy,
    after_expiry,
    after_failure,
    is_allowed,
    on_enqueue,
)
from embed_pipeline.domain.metrics import Backlog, QueueState
from embed_pipeline.domain.pieces import Passage
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.domain.rate_window import (
    Grant,
    LimiterState,
    RateLimits,
    Window,
    followed,
    hold,
    hold_of,
    learnt,
    released,
    state_of,
    take,
)
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.relations import BEHIND, RELATIONS_DELAY
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
from embed_pipeline.domain.text import (
    fingerprint,
    only_neighbours_differ,
    recipe_of,
    render_for,
    share_of,
)
from embed_pipeline.domain.vector import Vector, dimensions_of, print_of

ZERO = timedelta(0)
BY_QUEUE = "queue"


@dataclass
class FakeClock:
    """A clock that only moves when it is told to."""

    now: datetime = field(default_factory=lambda: datetime(2030, 1, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        """The same for a worker, which counts seconds."""
        return self.now.timestamp()

    def advance(self, duration: timedelta) -> None:
        self.now += duration


@dataclass
class FakeEntity:
    properties: dict[str, object]
    version: int
    vector: Vector | None = None
    vector_hash: str | None = None
    vector_model: str | None = None
    vector_version: int | None = None
    vector_print: int | None = None
    pieces: tuple[Passage, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.vector is not None and self.vector_print == print_of(self.vector)


@dataclass
class FakeQueue:
    """``JobStore``, ``QueueAdmin`` and ``QueueSwitch`` in one."""

    clock: FakeClock = field(default_factory=FakeClock)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    roll: Callable[[], float] = lambda: 0.0
    max_attempts: int = 3
    shape: EntityShape = field(default_factory=EntityShape)
    jobs: dict[str, Job] = field(default_factory=dict)
    entities: dict[str, FakeEntity] = field(default_factory=dict)
    counters: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
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
    forced: dict[str, int] = field(default_factory=dict)
    """Jobs that are to ask the provider, and the fence under which that was wanted."""
    put_off: set[str] = field(default_factory=set)
    """Jobs that nobody was in a hurry for when they were asked for."""
    relations_delay: timedelta = RELATIONS_DELAY
    operator: Operator | None = None
    actions: list[AuditEntry] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        return self.clock()

    def put_entity(self, uid: str, text: str = "", *, version: int = 1) -> str:
        properties = {"name": uid, "entityType": "test", "observations": [text]}
        return self.put(uid, properties, version=version)

    def put(self, uid: str, properties: dict[str, object], *, version: int = 1) -> str:
        """Write an entity of any shape, or another version of it; returns the hash of its text."""
        entity = self.entities.setdefault(uid, FakeEntity(properties, version))
        entity.properties, entity.version = properties, version
        return self.hash_of(properties)

    def hash_of(self, properties: Mapping[str, object]) -> str:
        return fingerprint(render_for(self.shape), recipe=recipe_of(self.shape))(properties)

    async def count(self, counts: Mapping[str, int]) -> None:
        for name, number in counts.items():
            self.counters[name] += number

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
        breaker = self.breaker
        if breaker.is_outage and breaker.is_probe_due(self.now):
            until = self.now + PROBE_LASTS
            self.breaker = replace(breaker, status=BreakerStatus.HALF_OPEN, probe_at=until)
            return LeaseBatch(refusal=str(breaker), is_probe=True)
        allowed = allowed_jobs(breaker, self.now, limit)
        if allowed == 0:
            return LeaseBatch(refusal=str(breaker))
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
                heartbeat_at=self.now,
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
        endings = {x: self._ending(x) for x in leases if x not in held}
        settled = {x: ending for x, ending in endings.items() if ending}
        gone = [x for x, ending in endings.items() if not ending]
        ended = tuple(x for x in gone if self._is_cancelled(x))
        return Beat(held, ended, tuple(x for x in gone if x not in ended), settled)

    async def load(
        self, leases: Sequence[Lease], *, longest: int | None = None
    ) -> list[LoadedEntity]:
        longest = share_of(len(leases)) if longest is None else longest
        return [self._load(lease, longest) for lease in leases]

    async def find_vectors(
        self, hashes: Sequence[str], *, model: str, dimensions: int
    ) -> Mapping[str, Vector]:
        found = [e for e in self.entities.values() if e.is_ours and e.vector_model == model]
        return {
            e.vector_hash: e.vector
            for e in found
            if e.vector_hash in hashes and e.vector and dimensions_of(e.vector) == dimensions
            if e.vector_hash is not None
        }

    async def find_pieces(
        self, hashes: Sequence[str], *, model: str, dimensions: int
    ) -> Mapping[str, Vector]:
        return {
            piece.text_hash: piece.vector
            for entity in self.entities.values()
            if entity.vector_model == model
            for piece in entity.pieces
            if piece.text_hash in hashes and dimensions_of(piece.vector) == dimensions
        }

    async def find_forced(self, leases: Sequence[Lease]) -> set[Lease]:
        return {lease for lease in leases if lease.job_id in self.forced}

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
        self.last_recovery = self.now
        expired = await self.find_expired(limit=limit, grace=grace)
        expired.sort(key=lambda job: (job.lock_until or self.now, job.id))
        return [self._recover(job) for job in expired[:limit]]

    async def recover_owner(self, owner: str) -> list[RecoveredJob]:
        recovered = [self._recover(job) for job in self._owned(owner)]
        self._note(OperatorAction.RECOVER, JobFilter(owner=owner), len(recovered))
        return recovered

    # everyone else's side

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

    async def purge_terminal(self, *, retention: timedelta) -> int:
        old = [
            job
            for job in self.jobs.values()
            if job.processed_at is not None and job.processed_at < self.now - retention
        ]
        for job in old:
            del self.jobs[job.id]
            self.counters[f"deleted_{job.status}"] += 1
        self._record(OperatorAction.PURGE, f"ended more than {retention.days} days ago", len(old))
        return len(old)

    async def purge_actions(self, *, retention: timedelta) -> int:
        old = [entry for entry in self.actions if entry.at < self.now - retention]
        self.actions = [entry for entry in self.actions if entry not in old]
        return len(old)

    async def record_recovery(self) -> None:
        self.counters["recoveries"] += 1

    async def find_expired(self, *, limit: int = 100, grace: timedelta = ZERO) -> list[Job]:
        expired = [
            (job.lock_until, job.id, job)
            for job in self.jobs.values()
            if job.lock_until is not None and job.lock_until < self.now - grace
        ]
        return [job for *_, job in sorted(expired, key=lambda found: found[:2])][:limit]

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
        self.paused = (redact(by), self.now)
        self._record(OperatorAction.PAUSE, "", 1)

    async def resume(self, *, close_breaker: bool = False) -> None:
        self.paused = None
        if close_breaker:
            self.breaker = Breaker()
        self._record(OperatorAction.RESUME, "close breaker" if close_breaker else "", 1)

    async def state(self) -> QueueState:
        by, since = self.paused or (None, None)
        return QueueState(self.breaker, self.paused is not None, by, since)

    async def open_breaker(self, reason: str, *, is_outage: bool = False) -> Breaker:
        self.breaker = opened(self.breaker, reason, self.now, is_outage=is_outage, roll=self.roll())
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
            tally.add_wanted(found, 0)
            is_lost = reading.job_status is JobStatus.COMPLETED
            wish = NewJob(uid, model, entity.version, text_hash=digest, is_lost=is_lost)
            if only_neighbours_differ(reading.vector_hash, digest, recipe=recipe_of(self.shape)):
                wish = replace(wish, priority=BEHIND, delay=self.relations_delay)
            wishes.append(wish)
        outcomes = await self.enqueue(wishes) if wishes else []
        return tally.page(cursor=None, orphaned=0, enqueued=dict(Counter(outcomes)))

    def explain(self, uid: str, model: str) -> Explanation:
        """Why an entity is found, or is not."""
        jobs = (job for job in self.jobs.values() if _key(job)[:2] == (uid, model))
        found = tuple(sorted(jobs, key=lambda job: -job.version))
        entity = self.entities.get(uid)
        if entity is None:
            return Explanation(uid, model, None, f"there is no entity {uid!r}", jobs=found)
        reading, digest = self._reading(uid, entity, model), self.hash_of(entity.properties)
        coverage = classify(reading, model=model, text_hash=digest, dimensions=None)
        job = next((job for job in found if job.version == entity.version), None)
        recipe = recipe_of(self.shape)
        return Explanation(
            uid,
            model,
            coverage,
            why_not(reading, coverage, text_hash=digest, recipe=recipe, job=job),
            text=render_for(self.shape)(entity.properties),
            version=entity.version,
            jobs=found,
        )

    def _reading(self, uid: str, entity: FakeEntity, model: str) -> EntityReading:
        key = (uid, model, entity.version)
        job = next((job for job in self.jobs.values() if _key(job) == key), None)
        return EntityReading(
            uid=uid,
            version=entity.version,
            has_vector=entity.vector is not None,
            dimensions=None if entity.vector is None else dimensions_of(entity.vector),
            vector_model=entity.vector_model,
            vector_hash=entity.vector_hash,
            vector_version=entity.vector_version,
            job_status=job.status if job else None,
            is_ours=entity.is_ours,
            is_wanted_anew=job is not None
            and job.status is JobStatus.COMPLETED
            and self.forced.get(job.id, -1) >= job.fence,
            entity_type=str(entity.properties.get(self.shape.type, "")),
            pieces=(job.pieces or 0) if job else 0,
            lacks_pieces=self.shape.pieces is not None and not entity.pieces,
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
        group = group_of([(j.id, j.attempts + 1 >= j.max_attempts) for j in suspects], limit)
        if group and suspects_first(self.turns, lane):
            return group
        if lane is Lane.SUSPECT:
            return []
        urgent = sorted(ready, key=lambda j: -j.priority)
        oldest = ready[: slots_for_oldest(self.slots, limit)]
        chosen = list(dict.fromkeys(j.id for j in [*oldest, *urgent]))[:limit]
        if chosen:
            self.slots += len(chosen)
            place = {j.id: n for n, j in enumerate(urgent[:limit])}
            return sorted(chosen, key=lambda i: place.get(i, limit))
        return group if lane is Lane.ANY else []

    def _load(self, lease: Lease, longest: int) -> LoadedEntity:
        if not self._holds(lease):
            self.counters["fenced"] += 1
            return LoadedEntity(lease, EntityFate.FENCED)
        entity, job = self.entities.get(lease.entity_uid), self.jobs[lease.job_id]
        if entity is not None and entity.version == job.version:
            size = sum(_size(entity.properties.get(name)) for name in self.shape.text)
            if size > longest:
                return LoadedEntity(lease, EntityFate.LONG, size=size)
            return LoadedEntity(lease, EntityFate.CURRENT, entity.properties, size=size)
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
            entity.vector_print = None if row.vector is None else print_of(row.vector)
            if self.shape.pieces is not None:
                entity.pieces = row.passages
            self._end(
                job.id,
                JobStatus.COMPLETED,
                text_hash=row.text_hash,
                tokens=row.tokens,
                pieces=row.pieces if row.pieces > 1 else None,
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
            self.counters["fenced"] += ending is None
            return FailureOutcome.FENCED
        job = self.jobs[lease.job_id]
        decision = after_failure(
            row.category,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            policy=self.retry,
            roll=self.roll(),
            is_pinned=row.is_pinned,
            is_outage=row.is_outage,
        )
        if isinstance(decision, GiveUp) and row.text_hash and job.text_hash:
            decision = decision if row.text_hash == job.text_hash else GiveBack()
        history = self._history(job, redact(row.message), row.category)
        self._set(
            job.id, error=redact(row.message), error_category=row.category, error_history=history
        )
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
        who, why = redact(by), redact(reason) or None
        self._end(job_id, JobStatus.CANCELLED, cancelled_by=who, error=why)

    def _reopen(self, job_id: str, **fields: object) -> None:
        if job_id in self.put_off:
            self.put_off.remove(job_id)
            fields = {"priority": 0, **fields}
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
            cancelled_by=None,
            **{"error_history": (), **fields},
        )

    def _history(self, job: Job, message: str, category: ErrorCategory) -> tuple[str, ...]:
        entry = {"attempt": job.attempts, "category": category.value, "message": message}
        return (*job.error_history, json.dumps(entry))[-10:]

    def _note(
        self, action: OperatorAction, which: JobFilter, count: int, *, reason: str = ""
    ) -> None:
        self._record(action, describe_filter(which, reason=reason), count)

    def _record(self, action: OperatorAction, asked: str, count: int) -> None:
        if self.operator is not None and count:
            operator = self.operator
            entry = AuditEntry(
                uuid4().hex, self.now, operator.actor, action, asked, count, operator.run_id
            )
            self.actions.insert(0, entry)

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

    async def hold(self, pause: timedelta, *, owner: str, said: str) -> Grant:
        self._follow()
        pause_ms, origin = pause // timedelta(milliseconds=1), Origin(DEFAULT_QUEUE, owner, said)
        self.window = hold(self.window, pause_ms=pause_ms, now_ms=self._now_ms, origin=origin)
        return take(self.window, self.limits, now_ms=self._now_ms)[1]

    async def learn(self, allowance: Allowance) -> None:
        self._follow()
        self.window = learnt(self.window, allowance, now_ms=self._now_ms)

    async def correct(self, *, counted: int, charged: int) -> None:
        self._follow()
        budget, spent = self.limits.budget, self.window.spending
        after = corrected(spent, budget, counted=counted, charged=charged)
        self.window = replace(self.window, spending=after)

    async def read(self) -> LimiterState:
        window = followed(self.window, self.limits, now_ms=self._now_ms)
        return state_of(window, self.limits, name="default", now_ms=self._now_ms)

    async def clear(self) -> Hold | None:
        self._follow()
        ended, self.window = hold_of(self.window, now_ms=self._now_ms), released(self.window)
        return ended

    def _follow(self) -> None:
        self.window = followed(self.window, self.limits, now_ms=self._now_ms)

    @property
    def _now_ms(self) -> int:
        return int(self.clock().timestamp() * 1000)


def _size(value: object) -> int:
    """Count as the database does: list entries with one separator each."""
    if isinstance(value, list):
        return sum(1 + len(str(entry)) for entry in value)
    return len(value) if isinstance(value, str) else 0 if value is None else 16


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
