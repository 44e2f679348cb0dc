"""The queue for programs with an async driver."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, cast

from embed_pipeline.api.operations import ACTOR, Operations
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from neo4j import AsyncDriver, AsyncManagedTransaction, AsyncTransaction

    from embed_pipeline.domain.identity import Embedding
    from embed_pipeline.domain.job import NewJob
    from embed_pipeline.domain.lifecycle import EnqueueOutcome
    from embed_pipeline.domain.ports import JobStore
    from embed_pipeline.settings import Settings


class AsyncQueue(Operations):
    """A queue of embeddings in Neo4j, for a program with an async driver.

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
        driver: AsyncDriver,
        embedding: Embedding,
        *,
        name: str = DEFAULT_QUEUE,
        database: str = "neo4j",
        actor: str = ACTOR,
    ) -> None:
        from neo4j import AsyncDriver as Wanted

        from embed_pipeline.settings import settings_for

        if not isinstance(driver, Wanted):
            raise ConfigurationError(
                f"AsyncQueue needs an AsyncDriver, this is a {type(driver).__name__}; "
                "a Queue takes a Driver"
            )
        settings = settings_for(embedding, queue=name, database=database)
        super().__init__(driver, settings, actor=actor)
        self._is_own_driver = False

    @classmethod
    def from_settings(cls, settings: Settings | None = None, *, actor: str = ACTOR) -> Self:
        """A queue with a driver of its own, as the environment and ``.env`` say; close it.

        Raises:
            ConfigurationError: lists every setting that cannot be used.
        """
        from embed_pipeline.operations import wiring
        from embed_pipeline.settings.embeddings import chosen_embedding, log_all_warnings
        from embed_pipeline.store.connection import open_driver

        if settings is None:
            settings = chosen_embedding(None)
            log_all_warnings([settings])
        connection = wiring.connection(settings)

        @asynccontextmanager
        async def open_store() -> AsyncGenerator[JobStore]:
            async with open_driver(connection) as driver:
                yield wiring.queue_on(driver, settings).jobs

        queue = cls.__new__(cls)
        Operations.__init__(
            queue, open_driver(connection), settings, actor=actor, open_store=open_store
        )
        queue._is_own_driver = True
        return queue

    async def enqueue(
        self,
        entity: str | NewJob,
        *,
        tx: AsyncTransaction | AsyncManagedTransaction | None = None,
        priority: int = 0,
        force: bool = False,
    ) -> EnqueueOutcome:
        """Have an entity embedded in its current version; ``enqueue_many`` for several."""
        [outcome] = await self.enqueue_many([entity], tx=tx, priority=priority, force=force)
        return outcome

    async def enqueue_many(
        self,
        entities: Iterable[str | NewJob],
        *,
        tx: AsyncTransaction | AsyncManagedTransaction | None = None,
        priority: int = 0,
        force: bool = False,
        accept_cost: bool = False,
    ) -> list[EnqueueOutcome]:
        """Have entities embedded, named by their keys or as jobs; one outcome each, in order.

        Inside ``tx`` entity and job commit together or not at all. Write the entity before the
        call, in the same transaction.

        Raises:
            CostError: without ``tx``: it would cost more than EMBED_CONFIRM_USD, and
                ``accept_cost`` is false; nothing was enqueued.
            QueueError: there is no entity with one of the keys; nothing was enqueued.
            ModelMismatchError: the queue belongs to another model.
            ConfigurationError: ``tx`` is one of a sync driver; nothing was enqueued.
        """
        if tx is None:
            return await super().enqueue_many(
                entities, priority=priority, force=force, accept_cost=accept_cost
            )
        from neo4j import ManagedTransaction, Transaction as SyncTransaction

        from embed_pipeline.store.database import QueueTransaction, Transaction
        from embed_pipeline.store.enqueue import enqueueing_entities
        from embed_pipeline.store.steps import run

        if isinstance(tx, SyncTransaction | ManagedTransaction):
            raise ConfigurationError(
                f"AsyncQueue needs a transaction of an AsyncDriver, this is a {type(tx).__name__}; "
                "a Queue takes it. Nothing was enqueued"
            )
        config = self.store.config
        steps = enqueueing_entities(
            config, list(entities), model=self.settings.model, priority=priority, force=force
        )
        return await run(QueueTransaction(cast("Transaction", tx), config.queue), steps)

    async def close(self) -> None:
        """Close the driver, if it is the queue's own."""
        if self._is_own_driver:
            await self.driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
