"""What a queue in memory consists of, and the moves of its jobs."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import uuid4

from embed_pipeline.domain.audit import AuditEntry, Operator, OperatorAction, describe_filter
from embed_pipeline.domain.breaker import (
    Breaker,
)
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import Job, JobFilter, JobStatus, Lease, NewJob
from embed_pipeline.domain.lifecycle import (
    RetryPolicy,
)
from embed_pipeline.domain.metrics import QueueState
from embed_pipeline.domain.pieces import Passage
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.relations import RELATIONS_DELAY
from embed_pipeline.domain.text import (
    hasher,
    recipe_of,
    render_for,
)
from embed_pipeline.domain.vector import Vector, print_of
from embed_pipeline.testing.clock import FakeClock

ZERO = timedelta(0)
BY_QUEUE = "queue"


@dataclass
class FakeEntity:
    """A node with its vector and the pieces of its text."""

    properties: dict[str, object]
    version: int
    vector: Vector | None = None
    vector_hash: str | None = None
    vector_model: str | None = None
    vector_version: int | None = None
    vector_print: int | None = None
    vector_pieces: int = 1
    pieces: tuple[Passage, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.vector is not None and self.vector_print == print_of(self.vector)


@dataclass
class FakeState:
    """Jobs and entities; every side of the queue works on them."""

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
    """Jobs that were enqueued with a delay."""
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
        return hasher(render_for(self.shape), recipe=recipe_of(self.shape))(properties)

    async def count(self, counts: Mapping[str, int]) -> None:
        for name, number in counts.items():
            self.counters[name] += number

    async def state(self) -> QueueState:
        return self.queue_state

    @property
    def queue_state(self) -> QueueState:
        """Whether jobs are given out."""
        by, since = self.paused or (None, None)
        return QueueState(self.breaker, self.paused is not None, by, since)

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

    def _supersede(self, wish: NewJob) -> None:
        for job in list(self.jobs.values()):
            is_older = key_of(job)[:2] == wish.key[:2] and job.version < wish.version
            if is_older and job.status is JobStatus.PENDING:
                self.counters["superseded"] += 1
                self._cancel(job.id, BY_QUEUE, f"superseded by version {wish.version}")

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

    def _holds(self, lease: Lease) -> bool:
        job = self.jobs.get(lease.job_id)
        return (
            job is not None
            and job.status is JobStatus.PROCESSING
            and (job.fence, job.lock_owner) == (lease.fence, lease.owner)
        )

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


def _unlocked(job: Job) -> dict[str, object]:
    owner = job.lock_owner or job.last_owner
    return {
        "lock_owner": None,
        "lock_until": None,
        "heartbeat_at": None,
        "last_owner": owner,
    }


def key_of(job: Job) -> tuple[str, str, int]:
    return (job.entity_uid, job.model, job.version)


def reason_of(entity: FakeEntity | None) -> str:
    return "entity deleted" if entity is None else f"superseded by version {entity.version}"
