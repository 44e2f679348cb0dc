"""The worker's side of a queue in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from embed_pipeline.domain.breaker import (
    PROBE_LASTS,
    BreakerStatus,
    allowed_jobs,
)
from embed_pipeline.domain.fairness import Lane, group_of, slots_for_oldest, suspects_first
from embed_pipeline.domain.job import JobStatus, Lease, LeasedJob
from embed_pipeline.domain.lifecycle import (
    GiveBack,
    GiveUp,
    after_failure,
)
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.results import (
    Beat,
    Completion,
    CompletionOutcome,
    EntityFate,
    Failure,
    FailureOutcome,
    LeaseBatch,
    LoadedEntity,
)
from embed_pipeline.domain.text import (
    share_of,
)
from embed_pipeline.domain.vector import Vector, dimensions_of, print_of
from embed_pipeline.testing.state import BY_QUEUE, FakeState, reason_of


class FakeWorkerSide(FakeState):
    """What ``JobStore`` promises, except recovery."""

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
        self._cancel(job.id, BY_QUEUE, reason_of(entity))
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
            entity.vector_pieces = row.pieces
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
            self._cancel(job.id, BY_QUEUE, reason_of(entity))
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

    def _is_cancelled(self, lease: Lease) -> bool:
        job = self.jobs.get(lease.job_id)
        return job is not None and job.fence == lease.fence and job.status is JobStatus.CANCELLED


def _size(value: object) -> int:
    """Count as the database does: list entries with one separator each."""
    if isinstance(value, list):
        return sum(1 + len(str(entry)) for entry in value)
    return len(value) if isinstance(value, str) else 0 if value is None else 16
