"""Settings in, parts out: the one place where the layers get their values."""

import asyncio
import gc
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.ports import Embedder, JobStore
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.text import recipe_of, render_for
from embed_pipeline.settings import Settings
from embed_pipeline.store import schema
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import Connection, Driver, connected, open_driver
from embed_pipeline.store.database import TRANSACTION_TIMEOUT
from embed_pipeline.store.queue import Queue, open_queue
from embed_pipeline.store.rate_limit import Neo4jRateLimiter
from embed_pipeline.worker.engine import Drain, Parts
from embed_pipeline.worker.options import DrainOptions

SHORTEST_TIMEOUT: Final = timedelta(seconds=1)


def connection(settings: Settings) -> Connection:
    """Where Neo4j is, and who we are there."""
    return Connection(
        uri=settings.neo4j_uri,
        username=settings.neo4j_username,
        password=settings.neo4j_password,
        database=settings.neo4j_database,
    )


def open_embedder(settings: Settings) -> Embedder:
    """Open the provider; each is imported only when it is wanted, openai alone takes a second."""
    model, dimensions = settings.model, settings.dimensions
    match settings.provider:
        case Provider.OPENAI:
            from embed_pipeline.embedding.openai import OpenAIEmbedder

            key = settings.openai_api_key
            return OpenAIEmbedder(
                model=model,
                dimensions=dimensions,
                api_key=key.get_secret_value() if key else "",
                base_url=settings.openai_base_url,
            )
        case Provider.LOCAL:
            from embed_pipeline.embedding.local import LocalEmbedder

            return LocalEmbedder(model=model, dimensions=dimensions)
        case Provider.MOCK:
            from embed_pipeline.embedding.mock import MockEmbedder

            return MockEmbedder(model=model, dimensions=dimensions)


def queue_config(settings: Settings) -> QueueConfig:
    """What the store has to know about the queue."""
    secrets = [settings.neo4j_password]
    if settings.openai_api_key:
        secrets.append(settings.openai_api_key.get_secret_value())
    return QueueConfig(
        shape=settings.entity_shape,
        queue=settings.queue,
        max_attempts=settings.max_attempts,
        dimensions=settings.dimensions,
        secrets=tuple(secrets),
    )


async def install_schema(
    driver: Driver, settings: Settings, *, replace_vector_index: bool = False
) -> schema.InstallReport:
    """Create what the queue needs in the database.

    Raises:
        SchemaError: the database holds something that contradicts.
    """
    return await schema.install(
        driver,
        database=settings.neo4j_database,
        shape=settings.entity_shape,
        dimensions=settings.dimensions,
        queue=settings.queue,
        replace_vector_index=replace_vector_index,
    )


async def inspect_schema(driver: Driver, settings: Settings) -> schema.SchemaState:
    """Look at what the queue needs in the database."""
    return await schema.inspect(
        driver,
        database=settings.neo4j_database,
        shape=settings.entity_shape,
        queue=settings.queue,
    )


@asynccontextmanager
async def opened_queue(settings: Settings, *, for_drain: bool = False) -> AsyncGenerator[Queue]:
    """Connect to Neo4j and put the queue together.

    Raises:
        SchemaError: the schema is missing, or, for a drain, the vector index takes vectors of
            another length than the model makes.
    """
    async with connected(connection(settings)) as driver:
        state = await inspect_schema(driver, settings)
        problem = state.problem or (state.misfit(settings.dimensions) if for_drain else None)
        if problem:
            raise SchemaError(problem)
        yield queue_on(driver, settings)


def queue_on(driver: Driver, settings: Settings) -> Queue:
    """Put the queue together on an open driver; nothing is looked at."""
    # A worker suspended inside a transaction holds its locks so long; meanwhile nobody else's
    # lease on the same jobs may expire.
    timeout = max(SHORTEST_TIMEOUT, min(TRANSACTION_TIMEOUT, settings.lease / 3))
    return open_queue(
        driver,
        database=settings.neo4j_database,
        config=queue_config(settings),
        timeout=timeout,
    )


def rate_limits(settings: Settings) -> RateLimits:
    """What the provider allows, over all workers together."""
    return RateLimits(
        requests=settings.rate_limit_requests,
        interval=timedelta(milliseconds=settings.rate_limit_interval_ms),
    )


def open_limiter(queue: Queue, settings: Settings) -> Neo4jRateLimiter:
    """The limit, counted together with everybody who names it the same."""
    return queue.limiter(rate_limits(settings), name=settings.rate_limit_name)


def drain_options(settings: Settings) -> DrainOptions:
    """How a drain works if nobody says otherwise."""
    return DrainOptions(
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        job_timeout=timedelta(milliseconds=settings.job_timeout_ms),
        recovery_interval=timedelta(milliseconds=settings.recovery_interval_ms),
        recovery_grace=timedelta(milliseconds=settings.recovery_grace_ms),
    )


def owner_of(run_id: str) -> str:
    """A name for the leases of this process; everything of a run begins with its id."""
    return f"{run_id}/{socket.gethostname()}/{os.getpid()}"


def set_loaded_modules_aside() -> None:
    """Let the garbage collector pass over everything that is there before the work begins.

    Dagster alone is 180,000 objects that stay; looking at what stays again and again was a tenth of
    a drain's processor time.
    """
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def opened_drain(
    settings: Settings,
    embedder: Embedder,
    *,
    owner: str,
    options: DrainOptions,
    stop: asyncio.Event,
) -> AsyncGenerator[tuple[Queue, Drain]]:
    """Open the queue and put a drain together, which has not begun; closes the embedder too.

    Raises:
        SchemaError: the schema is missing, or does not fit the model.
    """
    try:
        async with opened_queue(settings, for_drain=True) as queue:
            set_loaded_modules_aside()
            yield queue, _drain(settings, queue, embedder, owner=owner, options=options, stop=stop)
    finally:
        await embedder.close()


def _drain(
    settings: Settings,
    queue: Queue,
    embedder: Embedder,
    *,
    owner: str,
    options: DrainOptions,
    stop: asyncio.Event,
) -> Drain:
    @asynccontextmanager
    async def open_store() -> AsyncGenerator[JobStore]:
        async with open_driver(connection(settings)) as driver:
            yield queue_on(driver, settings).jobs

    parts = Parts(
        store=queue.jobs,
        open_store=open_store,
        limiter=open_limiter(queue, settings),
        switch=queue.switch,
        counters=queue.admin,
        embedder=embedder,
        render=render_for(settings.entity_shape),
        recipe=recipe_of(settings.entity_shape),
    )
    return Drain(parts, owner=owner, options=options, stop=stop)
