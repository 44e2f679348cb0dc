"""What a program can do with a queue, whatever driver it has."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.errors import CostError, SchemaError
from embed_pipeline.domain.job import JobFilter
from embed_pipeline.operations.selection import jobs_for, to_retry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from neo4j import AsyncDriver

    from embed_pipeline.domain.coverage import CoverageReport
    from embed_pipeline.domain.explanation import Explanation
    from embed_pipeline.domain.job import Job, Lease, NewJob
    from embed_pipeline.domain.lifecycle import EnqueueOutcome
    from embed_pipeline.domain.metrics import QueueMetrics
    from embed_pipeline.domain.ports import JobStore
    from embed_pipeline.domain.results import Beat, BulkReport, Cleanup, Hit, RecoveredJob
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue as Store
    from embed_pipeline.store.schema.state import InstallReport
    from embed_pipeline.worker.lease_keeper import OpenStore
    from embed_pipeline.worker.report import DrainReport

ACTOR: Final = "a Python program"
LATELY: Final = timedelta(minutes=5)


class Operations:
    """The operations of a queue, on a driver of either kind."""

    def __init__(
        self,
        driver: AsyncDriver,
        settings: Settings,
        *,
        actor: str,
        open_store: OpenStore | None = None,
    ) -> None:
        from embed_pipeline.operations import wiring

        self.settings = settings
        self.driver = driver
        self.operator = Operator(actor)
        self.store: Store = wiring.queue_on(driver, settings).acting_as(self.operator)
        self._open_store = open_store
        self._is_checked = False

    async def init(self, *, change_model: bool = False) -> InstallReport:
        """Create constraints and indexes, and claim the queue for the model; safe to repeat.

        Raises:
            SchemaError: the database holds something that contradicts.
            ModelMismatchError: the queue belongs to another model, and ``change_model`` is false.
        """
        from embed_pipeline.operations import wiring

        return await wiring.install_schema(
            self.driver, self.settings, change_model=change_model, operator=self.operator
        )

    async def enqueue_many(
        self,
        entities: Iterable[str | NewJob],
        *,
        priority: int = 0,
        force: bool = False,
        accept_cost: bool = False,
    ) -> list[EnqueueOutcome]:
        """Enqueue in transactions of the queue's own; one outcome per entity, in order."""
        from embed_pipeline.operations.planning import question_about_keys

        queue, settings = await self.checked(), self.settings
        jobs = await jobs_for(
            queue, list(entities), model=settings.model, priority=priority, force=force
        )
        if len(jobs) > 1 and not accept_cost:
            keys = [job.entity_uid for job in jobs]
            if question := await question_about_keys(queue, settings, keys):
                raise CostError(f"{question} Say accept_cost=True; nothing was enqueued")
        return await queue.admin.enqueue(jobs)

    async def queue_status(self, *, window: timedelta = LATELY) -> QueueMetrics:
        """Every figure of the queue: jobs by state, ages, pause, breaker, throughput."""
        from embed_pipeline.operations.reading import read_metrics

        return await read_metrics(await self.checked(), self.settings, window=window)

    async def job_status(self, job_id: str) -> Job:
        """Everything about one job.

        Raises:
            JobNotFoundError: no job has this id.
        """
        return await (await self.checked()).admin.job_status(job_id)

    async def find_jobs(
        self, which: JobFilter | None = None, *, limit: int = 100, after: str | None = None
    ) -> list[Job]:
        """A page of jobs, ordered by id, beginning after the id ``after``."""
        queue = await self.checked()
        return await queue.admin.find_jobs(which or JobFilter(), limit=limit, after=after)

    async def cancel(
        self, which: JobFilter, *, reason: str = "", preview: bool = False
    ) -> BulkReport:
        """Cancel what is pending or processing; finished jobs are left alone."""
        queue = await self.checked()
        return await queue.admin.cancel(
            which, by=str(self.operator), reason=reason, preview=preview
        )

    async def cancel_job(self, job_id: str, *, reason: str = "") -> None:
        """Cancel one job.

        Raises:
            JobNotFoundError: no job has this id.
            TransitionRefusedError: the job has ended; the message says how.
        """
        queue = await self.checked()
        await queue.admin.cancel_job(job_id, by=str(self.operator), reason=reason)

    async def retry_failed(self, which: JobFilter, *, preview: bool = False) -> BulkReport:
        """Give failed jobs a fresh start.

        PERMANENT failures are left out unless the filter names them, by id or by category.
        """
        return await (await self.checked()).admin.retry_failed(to_retry(which), preview=preview)

    async def release(self, owner: str) -> int:
        """Release what a worker or a Dagster run holds, attempts refunded; returns the count."""
        return await (await self.checked()).admin.release_owner(owner)

    async def find_expired(self, *, limit: int = 100) -> list[Job]:
        """Jobs whose lease has expired, the oldest expiry first; changes nothing."""
        queue = await self.checked()
        return await queue.admin.find_expired(limit=limit, grace=self._grace)

    async def recover(self, *, limit: int | None = None) -> list[RecoveredJob]:
        """Take expired leases away from workers that have gone silent."""
        from embed_pipeline.operations.recovery import recover_all

        return await recover_all(await self.checked(), grace=self._grace, limit=limit)

    @property
    def _grace(self) -> timedelta:
        return self.settings.recovery_grace

    async def scan(self, *, dry_run: bool = False) -> CoverageReport:
        """Compare every entity with its vector, and enqueue what does not fit."""
        from embed_pipeline.operations.scan import Scan

        scan = Scan.begin((await self.checked()).reconciler(self.settings.model))
        await scan.go_on(dry_run=dry_run)
        return scan.report

    async def cleanup(self, *, dry_run: bool = False) -> Cleanup:
        """Delete ended jobs and entries of the audit past EMBED_JOB_RETENTION_DAYS."""
        from embed_pipeline.operations.cleanup import clean_up

        return await clean_up(await self.checked(), self.settings, dry_run=dry_run)

    async def explain(self, entity: str) -> Explanation:
        """Why an entity is found, or is not: its text, its vector, its jobs, the price of a change.

        Changes nothing and asks no provider.
        """
        from embed_pipeline.operations.explaining import explain

        return await explain(await self.checked(), self.settings, entity)

    async def pause(self) -> None:
        """Give out no more jobs; leased jobs are still finished."""
        await (await self.checked()).switch.pause(by=str(self.operator))

    async def resume(self, *, close_breaker: bool = False) -> None:
        """Give out jobs again; an open breaker holds on unless it is closed with it."""
        await (await self.checked()).switch.resume(close_breaker=close_breaker)

    async def search(self, text: str, *, limit: int = 10) -> list[Hit]:
        """The entities nearest in meaning, the nearest first, each with its text.

        The question counts against the rate limit that all workers share, and waits for it.
        """
        from embed_pipeline.operations.search import search_for

        queue = await self.checked(for_vectors=True)
        return await search_for(queue, self.settings, text, limit=limit)

    async def process_jobs(
        self,
        limit: int | None = None,
        *,
        max_time: timedelta | None = None,
        stop: asyncio.Event | None = None,
    ) -> DrainReport:
        """Work: recover, lease, embed and complete, until nothing is due or ``limit`` is reached.

        Cancelling it, or setting ``stop``, ends it in an orderly way: what is not done is given
        back. ``report.fault`` says whether nothing can work until somebody acts.
        """
        from embed_pipeline.operations import wiring
        from embed_pipeline.operations.learning import ready_to_drain

        queue = await self.checked(for_vectors=True)
        await queue.identity.claim()
        # What a worker does is no operator's action.
        queue = wiring.queue_on(self.driver, self.settings)
        stop, owner = stop or asyncio.Event(), wiring.owner_of(f"python-{uuid4()}")
        options = wiring.drain_options(self.settings)
        options = replace(options, max_jobs=limit, max_time=max_time)
        embedder = wiring.open_embedder(self.settings)
        ready = ready_to_drain(queue, self.settings, embedder, options, owner=owner, stop=stop)
        async with ready as (settings, embedder, options):
            drain = wiring.drain_on(
                queue,
                settings,
                embedder,
                owner=owner,
                options=options,
                open_store=self._open_store or through_this_loop(queue),
                stop=stop,
            )
            return await drain.run()

    async def checked(self, *, for_vectors: bool = False) -> Store:
        """The queue, after checking that its schema exists and that it belongs to the model.

        Raises:
            SchemaError: the schema is missing, or ``for_vectors`` does not fit the model.
            ModelMismatchError: the queue belongs to another model.
        """
        from embed_pipeline.operations import wiring

        if not self._is_checked or for_vectors:
            state = await wiring.inspect_schema(self.driver, self.settings)
            misfit = state.misfit(self.settings.dimensions) if for_vectors else None
            if problem := state.problem or misfit:
                raise SchemaError(problem)
            self._is_checked = True
        await self.store.identity.check()
        return self.store


def through_this_loop(queue: Store) -> OpenStore:
    """Run the heartbeat's calls on this event loop: an async driver belongs to its loop.

    So the beats of such a worker stop while the program blocks its loop. A lease outlives that for
    minutes, and after it the worker writes nothing.
    """
    loop = asyncio.get_running_loop()

    class Beating:
        async def heartbeat(self, leases: Sequence[Lease], *, duration: timedelta) -> Beat:
            beat = asyncio.run_coroutine_threadsafe(
                queue.jobs.heartbeat(leases, duration=duration), loop
            )
            return await asyncio.wrap_future(beat)

    @asynccontextmanager
    async def open_store() -> AsyncGenerator[JobStore]:
        yield cast("JobStore", Beating())

    return open_store
