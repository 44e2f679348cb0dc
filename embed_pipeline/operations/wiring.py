"""Settings in, parts out: the one place where the layers get their values."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.identity import Identity
from embed_pipeline.domain.ports import Embedder, JobStore
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.redact import spellings
from embed_pipeline.domain.text import recipe_of, render_for
from embed_pipeline.operations.providers import open_provider
from embed_pipeline.operations.resident import set_loaded_modules_aside
from embed_pipeline.operations.splitting import document_splitter
from embed_pipeline.operations.tracing import drain_trace, traced
from embed_pipeline.settings import Settings
from embed_pipeline.settings.secrets import known_secrets
from embed_pipeline.store import schema
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import (
    Connection,
    Driver,
    OpenDriver,
    connected,
    fault_of,
    open_driver,
)
from embed_pipeline.store.database import TRANSACTION_TIMEOUT
from embed_pipeline.store.limiter import Neo4jRateLimiter
from embed_pipeline.store.queue import Queue, open_queue
from embed_pipeline.store.triggers import Neo4jTriggers
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.lease_keeper import OpenStore
from embed_pipeline.worker.options import Batching, DrainOptions, Parts
from embed_pipeline.worker.outage import Say

QUANTIZED: Final = {"auto": None, "true": True, "false": False}
SHORTEST_TIMEOUT: Final = timedelta(seconds=1)
UNLIMITED: Final = RateLimits(requests=None, interval=timedelta(minutes=1))
"""For a model on this machine; what is used in a minute is counted all the same."""


def connection(settings: Settings) -> Connection:
    """Address and credentials of Neo4j."""
    return Connection(
        uri=settings.neo4j_uri,
        username=settings.neo4j_username,
        password=settings.neo4j_password,
        database=settings.neo4j_database,
    )


def open_embedder(settings: Settings, *, for_questions: bool = False) -> Embedder:
    """Open the provider, with its requests in traces."""
    return traced(open_provider(settings, for_questions=for_questions), settings)


def identity_of(settings: Settings) -> Identity:
    """The identity within which these vectors are comparable."""
    shape, provider, model = settings.entity_shape, settings.provider_name, settings.model
    return Identity.of(shape, provider=provider, model=model, dimensions=settings.dimensions)


def queue_config(settings: Settings) -> QueueConfig:
    """The configuration of the store."""
    key = settings.openai_api_key
    own = [settings.neo4j_password, *([key.get_secret_value()] if key else [])]
    return QueueConfig(
        shape=settings.entity_shape,
        queue=settings.queue,
        max_attempts=settings.max_attempts,
        dimensions=settings.dimensions,
        keeps_foreign=settings.foreign_vectors == "keep",
        keeps_old=settings.keep_old_vectors == "true",
        relations_delay=settings.relations_delay,
        identity=identity_of(settings),
        secrets=(*known_secrets(), *spellings(own)),
    )


async def install_schema(
    driver: Driver,
    settings: Settings,
    *,
    change_model: bool = False,
    operator: Operator | None = None,
) -> schema.InstallReport:
    """Create what the queue needs in the database, and let it belong to the model.

    ``change_model`` makes a queue of another model belong to this one, and replaces a vector index
    of other dimensions.

    Raises:
        SchemaError: the database holds something that contradicts.
        ModelMismatchError: the queue belongs to another model.
    """
    queue = queue_on(driver, settings)
    identity = (queue.acting_as(operator) if operator else queue).identity
    if change_model and await identity.refusal():
        # First of all: from here on no worker uses the former model.
        await identity.change()
    await identity.check()
    report = await schema.install(
        driver,
        database=settings.neo4j_database,
        shape=settings.entity_shape,
        dimensions=settings.dimensions,
        queue=settings.queue,
        replace_vector_index=change_model,
        quantized=QUANTIZED[settings.index_quantized],
        operator=operator,
    )
    # Last: what is refused for its index claims nothing.
    await identity.claim()
    await queue.adoption.all()
    return report


async def inspect_schema(driver: Driver, settings: Settings) -> schema.SchemaState:
    """Inspect what the queue needs in the database."""
    shape, queue = settings.entity_shape, settings.queue
    return await schema.inspect(driver, database=settings.neo4j_database, shape=shape, queue=queue)


@asynccontextmanager
async def opened_queue(
    settings: Settings, *, for_drain: bool = False, opener: OpenDriver = open_driver
) -> AsyncGenerator[Queue]:
    """Connect to Neo4j and put the queue together.

    Raises:
        SchemaError: the schema is missing, or, for a drain, the vector index takes vectors of
            another length than the model makes.
        ModelMismatchError: for a drain: the queue belongs to another model.
    """
    async with connected(connection(settings), opener) as driver:
        yield await checked_queue(driver, settings, for_drain=for_drain)


async def checked_queue(driver: Driver, settings: Settings, *, for_drain: bool = False) -> Queue:
    """The same on an open driver."""
    state = await inspect_schema(driver, settings)
    misfit = state.misfit(settings.dimensions) if for_drain else None
    if problem := state.problem or misfit:
        raise SchemaError(problem)
    queue = queue_on(driver, settings)
    if for_drain:
        await queue.identity.check()
    return queue


def queue_on(driver: Driver, settings: Settings) -> Queue:
    """Build the queue on an open driver, without any checks."""
    # A worker suspended inside a transaction holds its locks so long; meanwhile nobody else's
    # lease on the same jobs may expire.
    timeout = max(SHORTEST_TIMEOUT, min(TRANSACTION_TIMEOUT, settings.lease / 3))
    config, database = queue_config(settings), settings.neo4j_database
    return open_queue(driver, database=database, config=config, timeout=timeout)


def trigger_on(driver: Driver, settings: Settings) -> Neo4jTriggers:
    """The trigger that enqueues for the model."""
    return queue_on(driver, settings).triggers(settings.model)


def rate_limits(settings: Settings) -> RateLimits:
    """The provider's limits, shared by all workers."""
    tokens = settings.tokens_per_minute
    if settings.is_rate_limited:
        # Tokens of a minute in an interval that may be longer: fewer than allowed, never more.
        return RateLimits(settings.rate_limit_requests, settings.rate_limit_interval, tokens)
    return replace(UNLIMITED, tokens=tokens)


def open_limiter(queue: Queue, settings: Settings) -> Neo4jRateLimiter:
    """The limiter, shared with everybody who uses the same name."""
    limits = replace(rate_limits(settings), budget=settings.budget)
    return queue.limiter(limits, name=settings.rate_limit_name)


def drain_options(settings: Settings) -> DrainOptions:
    """The default options of a drain."""
    return DrainOptions(
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        job_timeout=settings.job_timeout,
        grace=settings.stop_grace,
        recovery_interval=settings.recovery_interval,
        recovery_grace=settings.recovery_grace,
        tokens_per_request=settings.tokens_per_request,
    )


def owner_of(run_id: str) -> str:
    """The ``lock_owner`` of this process; it begins with the run id."""
    return f"{run_id}/{socket.gethostname()}/{os.getpid()}"


@asynccontextmanager
async def opened_drain(
    settings: Settings,
    embedder: Embedder,
    *,
    owner: str,
    options: DrainOptions,
    stop: asyncio.Event,
    say: Say = lambda _: None,
    opener: OpenDriver = open_driver,
    mode: str | None = None,
) -> AsyncGenerator[tuple[Queue, Drain]]:
    """Open the queue and put a drain together, which has not begun; closes the embedder too.

    In ``mode`` batch, if not said that of the settings, what can wait is submitted first.

    Raises:
        SchemaError: the schema is missing, or does not fit the model.
        ModelMismatchError: the queue belongs to another model.
    """
    # They need this module.
    from embed_pipeline.operations.batches import batching_of
    from embed_pipeline.operations.learning import ready_to_drain

    async with AsyncExitStack() as stack:
        stack.push_async_callback(embedder.close)
        opened = opened_queue(settings, for_drain=True, opener=opener)
        queue = await stack.enter_async_context(opened)
        await queue.identity.claim()
        set_loaded_modules_aside()

        @asynccontextmanager
        async def open_store() -> AsyncGenerator[JobStore]:
            async with opener(connection(settings)) as driver:
                yield queue_on(driver, settings).jobs

        ready = ready_to_drain(queue, settings, embedder, options, owner=owner, stop=stop, say=say)
        settings, embedder, options = await stack.enter_async_context(ready)
        batching = await batching_of(
            queue, settings, embedder, options, mode=mode or settings.mode, say=say
        )
        drain = drain_on(
            queue,
            settings,
            embedder,
            owner=owner,
            options=options,
            stop=stop,
            say=say,
            open_store=open_store,
            batching=batching,
        )
        yield queue, drain


def drain_on(
    queue: Queue,
    settings: Settings,
    embedder: Embedder,
    *,
    owner: str,
    options: DrainOptions,
    open_store: OpenStore,
    stop: asyncio.Event | None = None,
    say: Say = lambda _: None,
    batching: Batching | None = None,
) -> Drain:
    """Build a drain without starting it; ``open_store`` is for its heartbeat."""
    parts = parts_on(queue, settings, embedder, open_store=open_store)
    parts = replace(parts, batching=batching)
    return Drain(parts, owner=owner, options=options, stop=stop, say=say)


def parts_on(
    queue: Queue, settings: Settings, embedder: Embedder, *, open_store: OpenStore | None = None
) -> Parts:
    """The parts of a drain; without ``open_store`` it sends no heartbeats."""
    shape = settings.entity_shape
    return Parts(
        store=queue.jobs,
        open_store=open_store or partial(nullcontext, queue.jobs),
        limiter=open_limiter(queue, settings),
        switch=queue.switch,
        counters=queue.admin,
        embedder=embedder,
        render=render_for(shape),
        recipe=recipe_of(shape),
        prepare=document_splitter(settings, embedder),
        fault_of=fault_of,
        release_owner=queue.admin.release_owner,
        price=settings.price,
        trace=partial(drain_trace, queue=settings.queue),
    )
