"""The queue for programs with a sync driver: the same operations, each to its end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self, cast

from embed_pipeline.api.operations import ACTOR, LATELY, Operations
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.operations.blocking import finish

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable
    from datetime import timedelta

    from neo4j import Driver, ManagedTransaction, Transaction

    from embed_pipeline.domain.coverage import CoverageReport
    from embed_pipeline.domain.explanation import Explanation
    from embed_pipeline.domain.identity import Embedding
    from embed_pipeline.domain.job import Job, JobFilter, NewJob
    from embed_pipeline.domain.lifecycle import EnqueueOutcome
    from embed_pipeline.domain.metrics import QueueMetrics
    from embed_pipeline.domain.ports import JobStore
    from embed_pipeline.domain.results import BulkReport, Cleanup, Hit, RecoveredJob
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.schema.state import InstallReport
    from embed_pipeline.worker.report import DrainReport

STOP_IS_SEEN_EVERY: Final = 0.1
"""Seconds."""


class Queue:
    """A queue of embeddings in Neo4j, for a program with a sync driver; also in a notebook.

    Args:
        driver: belongs to the program, which closes it.
        embedding: what is embedded and by which model.
        name: which queue of the database.
        database: which database of the server.
        actor: who changes the queue, as audit and jobs name it.

    Raises:
        ConfigurationError: something of it, or of the environment, is not allowed.
    """

    def __init__(
        self,
        driver: Driver,
        embedding: Embedding,
        *,
        name: str = DEFAULT_QUEUE,
        database: str = "neo4j",
        actor: str = ACTOR,
    ) -> None:
        from neo4j import Driver as Wanted

        from embed_pipeline.settings import settings_for

        if not isinstance(driver, Wanted):
            raise ConfigurationError(
                f"Queue needs a Driver, this is a {type(driver).__name__}; "
                "an AsyncQueue takes an AsyncDriver"
            )
        self._open(driver, settings_for(embedding, queue=name, database=database), actor=actor)
        self._is_own_driver = False

    @classmethod
    def from_settings(cls, settings: Settings | None = None, *, actor: str = ACTOR) -> Self:
        """A queue with a driver of its own, as the environment and ``.env`` say; close it.

        Raises:
            ConfigurationError: lists every setting that cannot be used.
        """
        from embed_pipeline.operations import wiring
        from embed_pipeline.settings.embeddings import chosen_embedding, log_all_warnings
        from embed_pipeline.store.connection import open_sync_driver

        if settings is None:
            settings = chosen_embedding(None)
            log_all_warnings([settings])
        queue = cls.__new__(cls)
        queue._open(open_sync_driver(wiring.connection(settings)), settings, actor=actor)
        queue._is_own_driver = True
        return queue

    def _open(self, driver: Driver, settings: Settings, *, actor: str) -> None:
        from embed_pipeline.operations import wiring
        from embed_pipeline.store.sync_driver import as_async

        @asynccontextmanager
        async def open_store() -> AsyncGenerator[JobStore]:
            yield wiring.queue_on(as_async(driver), settings).jobs

        self._driver = driver
        self._all = Operations(as_async(driver), settings, actor=actor, open_store=open_store)

    def init(self, *, change_model: bool = False) -> InstallReport:
        """See ``AsyncQueue.init``."""
        return finish(self._all.init(change_model=change_model))

    def enqueue(
        self,
        entity: str | NewJob,
        *,
        tx: Transaction | ManagedTransaction | None = None,
        priority: int = 0,
        force: bool = False,
    ) -> EnqueueOutcome:
        """Have an entity embedded in its current version; ``enqueue_many`` for several."""
        [outcome] = self.enqueue_many([entity], tx=tx, priority=priority, force=force)
        return outcome

    def enqueue_many(
        self,
        entities: Iterable[str | NewJob],
        *,
        tx: Transaction | ManagedTransaction | None = None,
        priority: int = 0,
        force: bool = False,
        accept_cost: bool = False,
    ) -> list[EnqueueOutcome]:
        """Have entities embedded, named by their keys or as jobs; see ``AsyncQueue.enqueue_many``.

        Inside ``tx`` entity and job commit together or not at all. Write the entity before the
        call, in the same transaction.
        """
        if tx is None:
            own = self._all.enqueue_many(
                entities, priority=priority, force=force, accept_cost=accept_cost
            )
            return finish(own)
        from neo4j import AsyncManagedTransaction, AsyncTransaction

        from embed_pipeline.store.enqueue import enqueueing_entities
        from embed_pipeline.store.steps import SyncTransaction, run_sync

        if isinstance(tx, AsyncTransaction | AsyncManagedTransaction):
            raise ConfigurationError(
                f"Queue needs a transaction of a Driver, this is an {type(tx).__name__}; "
                "an AsyncQueue takes it. Nothing was enqueued"
            )
        config, model = self._all.store.config, self._all.settings.model
        steps = enqueueing_entities(
            config, list(entities), model=model, priority=priority, force=force
        )
        return run_sync(cast("SyncTransaction", tx), config.queue, steps)

    def queue_status(self, *, window: timedelta = LATELY) -> QueueMetrics:
        """See ``AsyncQueue.queue_status``."""
        return finish(self._all.queue_status(window=window))

    def job_status(self, job_id: str) -> Job:
        """See ``AsyncQueue.job_status``."""
        return finish(self._all.job_status(job_id))

    def find_jobs(
        self, which: JobFilter | None = None, *, limit: int = 100, after: str | None = None
    ) -> list[Job]:
        """See ``AsyncQueue.find_jobs``."""
        return finish(self._all.find_jobs(which, limit=limit, after=after))

    def cancel(self, which: JobFilter, *, reason: str = "", preview: bool = False) -> BulkReport:
        """See ``AsyncQueue.cancel``."""
        return finish(self._all.cancel(which, reason=reason, preview=preview))

    def cancel_job(self, job_id: str, *, reason: str = "") -> None:
        """See ``AsyncQueue.cancel_job``."""
        finish(self._all.cancel_job(job_id, reason=reason))

    def retry_failed(self, which: JobFilter, *, preview: bool = False) -> BulkReport:
        """See ``AsyncQueue.retry_failed``."""
        return finish(self._all.retry_failed(which, preview=preview))

    def release(self, owner: str) -> int:
        """See ``AsyncQueue.release``."""
        return finish(self._all.release(owner))

    def find_expired(self, *, limit: int = 100) -> list[Job]:
        """See ``AsyncQueue.find_expired``."""
        return finish(self._all.find_expired(limit=limit))

    def recover(self, *, limit: int | None = None) -> list[RecoveredJob]:
        """See ``AsyncQueue.recover``."""
        return finish(self._all.recover(limit=limit))

    def scan(self, *, dry_run: bool = False) -> CoverageReport:
        """See ``AsyncQueue.scan``."""
        return finish(self._all.scan(dry_run=dry_run))

    def cleanup(self, *, dry_run: bool = False) -> Cleanup:
        """See ``AsyncQueue.cleanup``."""
        return finish(self._all.cleanup(dry_run=dry_run))

    def explain(self, entity: str) -> Explanation:
        """See ``AsyncQueue.explain``."""
        return finish(self._all.explain(entity))

    def pause(self) -> None:
        """See ``AsyncQueue.pause``."""
        finish(self._all.pause())

    def resume(self, *, close_breaker: bool = False) -> None:
        """See ``AsyncQueue.resume``."""
        finish(self._all.resume(close_breaker=close_breaker))

    def search(self, text: str, *, limit: int = 10) -> list[Hit]:
        """See ``AsyncQueue.search``."""
        return finish(self._all.search(text, limit=limit))

    def process_jobs(
        self,
        limit: int | None = None,
        *,
        max_time: timedelta | None = None,
        stop: threading.Event | None = None,
    ) -> DrainReport:
        """See ``AsyncQueue.process_jobs``; Ctrl-C, or setting ``stop``, ends it in an orderly way.

        A signal handler or another thread may set ``stop``.
        """
        if stop is None:
            return finish(self._all.process_jobs(limit, max_time=max_time))
        return finish(self._process_until(stop, limit, max_time))

    async def _process_until(
        self, stop: threading.Event, limit: int | None, max_time: timedelta | None
    ) -> DrainReport:
        told = asyncio.Event()

        async def listen() -> None:
            while not stop.is_set():  # noqa: ASYNC110 - set by a signal handler or a thread
                await asyncio.sleep(STOP_IS_SEEN_EVERY)
            told.set()

        if stop.is_set():
            told.set()

        listening = asyncio.create_task(listen())
        try:
            return await self._all.process_jobs(limit, max_time=max_time, stop=told)
        finally:
            listening.cancel()

    def close(self) -> None:
        """Close the driver, if it is the queue's own."""
        if self._is_own_driver:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
