"""``Queue`` and ``AsyncQueue`` without a database, for the tests of programs that use them."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from operator import mul
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from embed_pipeline.api.async_queue import AsyncQueue
from embed_pipeline.api.operations import ACTOR, LATELY, Operations
from embed_pipeline.api.sync_queue import Queue
from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.errors import QueueError
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.domain.models import MOCK_PREFIX
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.results import Cleanup, Hit, PurgeReport
from embed_pipeline.domain.text import recipe_of, render_for
from embed_pipeline.domain.vector import Vector, mean_of, numbers_of
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.embedding.tokens import document_splitter
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.testing.limiter import FakeRateLimiter
from embed_pipeline.testing.memory import FakeQueue

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Iterable

    from embed_pipeline.domain.coverage import CoverageReport
    from embed_pipeline.domain.explanation import Explanation
    from embed_pipeline.domain.identity import Embedding
    from embed_pipeline.domain.job import Job
    from embed_pipeline.domain.lifecycle import EnqueueOutcome
    from embed_pipeline.domain.ports import JobStore
    from embed_pipeline.store.queue import Queue as Store
    from embed_pipeline.store.schema.state import InstallReport
    from embed_pipeline.worker.report import DrainReport

NO_LIMIT = RateLimits(requests=1_000_000, interval=timedelta(seconds=1))


class InMemoryOperations(Operations):
    """The operations on a queue in memory; vectors are those of ``MockEmbedder``."""

    def __init__(self, embedding: Embedding, *, clock: FakeClock | None, actor: str) -> None:
        from embed_pipeline.settings import settings_for

        model = MOCK_PREFIX + embedding.model.removeprefix(MOCK_PREFIX)
        embedding = replace(embedding, provider="mock", model=model)
        self.settings = settings_for(embedding, queue=DEFAULT_QUEUE, database="neo4j")
        self.operator = Operator(actor)
        self.fake = FakeQueue(
            clock=clock or FakeClock(),
            shape=embedding.shape,
            max_attempts=self.settings.max_attempts,
            operator=self.operator,
        )

    def put(self, key: str, properties: dict[str, object], *, version: int = 1) -> None:
        """Write an entity into the graph, or change it; does not enqueue it."""
        self.fake.put(key, {self.fake.shape.key: key, **properties}, version=version)

    async def checked(self, *, for_vectors: bool = False) -> Store:
        """The queue in memory needs no schema."""
        parts = SimpleNamespace(admin=self.fake, switch=self.fake, jobs=self.fake)
        return cast("Store", parts)

    async def init(self, *, change_model: bool = False) -> InstallReport:
        from embed_pipeline.store.schema.state import InstallReport

        return InstallReport(version=0, vector_index="in memory", created=(), present=())

    async def enqueue_many(
        self,
        entities: Iterable[str | NewJob],
        *,
        tx: object = None,
        priority: int = 0,
        force: bool = False,
        accept_cost: bool = False,
    ) -> list[EnqueueOutcome]:
        """Enqueue; accepts a transaction, but nothing is rolled back with it."""
        from embed_pipeline.store.enqueue import in_place_of_keys

        wanted = list(entities)
        keys = [entity for entity in wanted if isinstance(entity, str)]
        wishes = [self._job(key, priority=priority, force=force) for key in keys]
        jobs = in_place_of_keys(wanted, wishes, model=self.settings.model)
        return await self.fake.enqueue(jobs)

    def _job(self, entity: str, *, priority: int, force: bool) -> NewJob:
        if (found := self.fake.entities.get(entity)) is None:
            shape = self.fake.shape
            raise QueueError(
                f"no current {shape.label} has the {shape.key} {entity!r}; nothing was enqueued"
            )
        return NewJob(
            entity,
            self.settings.model,
            found.version,
            priority=priority,
            text_hash=self.fake.hash_of(found.properties),
            force=force,
        )

    async def queue_status(self, *, window: timedelta = LATELY) -> QueueMetrics:
        """The figures that jobs in memory provide."""
        fake, now = self.fake, self.fake.now
        jobs = list(fake.jobs.values())
        pending = [job for job in jobs if job.status is JobStatus.PENDING]
        delayed = [job for job in pending if job.run_after and job.run_after > now]
        expired = [now - job.lock_until for job in jobs if job.lock_until and job.lock_until < now]
        ended = [job for job in jobs if job.processed_at and job.processed_at >= now - window]
        ends = Counter(job.status for job in ended)
        return QueueMetrics(
            at=now,
            counts=await fake.counts(),
            ready=sum(not job.is_suspect for job in pending) - len(delayed),
            delayed=len(delayed),
            due_retries=sum(job.attempts > 0 for job in pending if job not in delayed),
            suspects=sum(job.is_suspect for job in pending),
            oldest_pending=max((now - job.queued_at for job in pending), default=None),
            expired_leases=len(expired),
            oldest_expired=max(expired, default=None),
            without_lock=0,
            window=window,
            completed_in_window=ends[JobStatus.COMPLETED],
            failed_in_window=ends[JobStatus.FAILED],
            cancelled_in_window=ends[JobStatus.CANCELLED],
            attempts=Counter(job.attempts for job in ended),
            categories=Counter(job.error_category for job in jobs if _is_failed(job)),  # pyright: ignore[reportArgumentType]
            counters=dict(fake.counters),
            state=await fake.state(),
            oldest_ended=fake.oldest_ended,
            last_recovery=fake.last_recovery,
        )

    async def scan(self, *, dry_run: bool = False) -> CoverageReport:
        """Compare every entity with its vector, and enqueue what does not fit."""
        from embed_pipeline.domain.coverage import CoverageReport

        fake = deepcopy(self.fake) if dry_run else self.fake
        page = await fake.reconcile(self.settings.model)
        return CoverageReport(self.settings.model).plus(page)

    async def cleanup(self, *, dry_run: bool = False) -> Cleanup:
        """Delete ended jobs and entries of the audit past EMBED_JOB_RETENTION_DAYS."""
        fake = deepcopy(self.fake) if dry_run else self.fake
        deleted = await fake.purge_terminal(retention=self.settings.retention)
        kept = timedelta(days=self.settings.retention_days)
        jobs = PurgeReport(deleted, 0, used_apoc=False, is_dry_run=dry_run)
        return Cleanup(jobs, await fake.purge_actions(retention=kept))

    async def explain(self, entity: str) -> Explanation:
        """Why an entity is found, or is not; without the cost of a change."""
        return self.fake.explain(entity, self.settings.model)

    async def search(self, text: str, *, limit: int = 10) -> list[Hit]:
        """The nearest entities; mock vectors match equal texts only."""
        embedder, render = self._embedder(), render_for(self.fake.shape)
        asked = embedder.prepare(text)
        question = mean_of((await embedder.embed(asked.inputs)).vectors, asked.weights)
        hits = [
            Hit(uid, None, _score(question, entity.vector), render(entity.properties))
            for uid, entity in self.fake.entities.items()
            if entity.vector is not None
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.uid))[:limit]

    async def process_jobs(
        self,
        limit: int | None = None,
        *,
        max_time: timedelta | None = None,
        stop: asyncio.Event | None = None,
    ) -> DrainReport:
        """Run the real drain on the queue in memory."""
        from embed_pipeline.worker.engine import Drain
        from embed_pipeline.worker.options import DrainOptions, Parts

        @asynccontextmanager
        async def open_store() -> AsyncGenerator[JobStore]:
            yield self.fake

        shape = self.fake.shape
        parts = Parts(
            store=self.fake,
            open_store=open_store,
            limiter=FakeRateLimiter(self.fake.clock, NO_LIMIT),
            switch=self.fake,
            counters=self.fake,
            embedder=self._embedder(),
            render=render_for(shape),
            recipe=recipe_of(shape),
            prepare=document_splitter(shape, max_tokens=self._embedder().limits.tokens_per_input),
        )
        options = DrainOptions(max_jobs=limit, max_time=max_time)
        return await Drain(parts, owner="python-in-memory", options=options, stop=stop).run()

    def _embedder(self) -> MockEmbedder:
        return MockEmbedder(model=self.settings.model, dimensions=self.settings.dimensions)


class InMemoryAsyncQueue(InMemoryOperations, AsyncQueue):
    """An ``AsyncQueue`` without a database; ``put`` writes entities."""

    def __init__(
        self, embedding: Embedding, *, clock: FakeClock | None = None, actor: str = ACTOR
    ) -> None:
        super().__init__(embedding, clock=clock, actor=actor)

    async def close(self) -> None:
        """Nothing is open."""


class InMemoryQueue(Queue):
    """A ``Queue`` without a database; ``put`` writes entities."""

    def __init__(
        self, embedding: Embedding, *, clock: FakeClock | None = None, actor: str = ACTOR
    ) -> None:
        self._all = self._memory = InMemoryOperations(embedding, clock=clock, actor=actor)
        self._is_own_driver = False

    def put(self, key: str, properties: dict[str, object], *, version: int = 1) -> None:
        """Write an entity into the graph, or change it; does not enqueue it."""
        self._memory.put(key, properties, version=version)

    def enqueue_many(
        self,
        entities: Iterable[str | NewJob],
        *,
        tx: Any = None,
        priority: int = 0,
        force: bool = False,
        accept_cost: bool = False,
    ) -> list[EnqueueOutcome]:
        """Enqueue; accepts a transaction, but nothing is rolled back with it."""
        return super().enqueue_many(entities, priority=priority, force=force)


def _is_failed(job: Job) -> bool:
    return job.status is JobStatus.FAILED and job.error_category is not None


def _score(one: Vector, other: Vector) -> float:
    return (1 + sum(map(mul, numbers_of(one), numbers_of(other)))) / 2
