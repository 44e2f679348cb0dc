"""The graph that is measured on: entities with jobs, and vectors that somebody else made."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, Final, LiteralString, TypeVar

from neo4j import AsyncDriver

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.vector import Vector, vector_of
from embed_pipeline.embedding.tokens import prepare
from embed_pipeline.store import schema
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import Connection, open_driver
from embed_pipeline.store.queue import Queue, open_queue
from embed_pipeline.store.schema.objects import ENTITY_VECTOR_INDEX_NAME

Answer = TypeVar("Answer")
MODEL: Final = "benchmark"
DIMENSIONS: Final = 1536
BATCH: Final = 500
PAGE: Final = 2_000

CREATE_ENTITIES: Final[LiteralString] = """
UNWIND range($first, $last) AS n
CREATE (:Entity {name: 'e' + n, entityType: 'thing', observations: '["' + n + '"]', version: 1})
"""
FORGET_VECTORS: Final[LiteralString] = """
MATCH (e:Entity) CALL (e) {
  REMOVE e.embedding, e.embedding_model, e.embedding_hash, e.embedding_version, e.embedding_job,
    e.embedding_print, e.embedding_at, e.embedding_pieces
} IN TRANSACTIONS OF 1000 ROWS
"""
DELETE_JOBS: Final[LiteralString] = """
MATCH (j:EmbedJob) CALL (j) { DELETE j } IN TRANSACTIONS OF 5000 ROWS
"""
DELETE_ENTITIES: Final[LiteralString] = """
MATCH (e:Entity) CALL (e) { DETACH DELETE e } IN TRANSACTIONS OF 1000 ROWS
"""


@dataclass
class Site:
    """One process's view of the graph."""

    driver: AsyncDriver
    connection: Connection
    queue: Queue
    vectors: list[Vector] = field(default_factory=lambda: packed(BATCH))
    numbers: list[list[float]] = field(default_factory=lambda: pool(BATCH))
    """The same, for those who keep lists."""

    async def run(self, statement: LiteralString, **parameters: Any) -> list[dict[str, Any]]:
        """Run a statement in a transaction of its own."""
        async with self.driver.session(database=self.connection.database) as session:
            result = await session.run(statement, parameters)
            return await result.data()

    async def prepare(self, entities: int, *, has_index: bool) -> None:
        """Make the graph anew."""
        await self.clear()
        await schema.install(
            self.driver,
            database=self.connection.database,
            shape=EntityShape(),
            dimensions=DIMENSIONS,
        )
        if not has_index:
            await self.run("DROP INDEX $name IF EXISTS", name=ENTITY_VECTOR_INDEX_NAME)
        for first in range(0, entities, PAGE):
            last = min(first + PAGE, entities) - 1
            await self.run(CREATE_ENTITIES, first=first, last=last)

    async def clear(self) -> None:
        """Delete everything; in one transaction it would be more than the server can hold.

        The index goes first: what is deleted from one is still in its files, and takes time.
        """
        await self.run("DROP INDEX $name IF EXISTS", name=ENTITY_VECTOR_INDEX_NAME)
        await self.run(DELETE_JOBS)
        await self.run(DELETE_ENTITIES)

    async def reset(self, entities: int, *, jobs: bool) -> None:
        """Take every vector away, and let there be a pending job for each entity, or none."""
        await self.run(FORGET_VECTORS)
        await self.run(DELETE_JOBS)
        await self.run("CALL db.awaitIndexes(300)")
        for first in range(0, entities if jobs else 0, PAGE):
            last = min(first + PAGE, entities)
            await self.queue.admin.enqueue([NewJob(f"e{n}", MODEL) for n in range(first, last)])

    async def check(self, entities: int) -> None:
        """Stop the benchmark if a contestant has not done all its work."""
        [row] = await self.run(
            "MATCH (e:Entity) WHERE size(e.embedding) = $size RETURN count(e) AS done",
            size=DIMENSIONS,
        )
        if row["done"] != entities:
            raise RuntimeError(f"{row['done']} of {entities} entities have a vector")


@asynccontextmanager
async def opened(connection: Connection) -> AsyncGenerator[Site]:
    """Connect, as a process of its own would."""
    async with open_driver(connection) as driver:
        config = QueueConfig(dimensions=DIMENSIONS)
        queue = open_queue(driver, config=config, timeout=timedelta(seconds=60))
        yield Site(driver, connection, queue)


def on_site(
    connection: Connection, work: Callable[..., Awaitable[Answer]], /, *args: Any, **options: Any
) -> Answer:
    """Do something to the graph between two measurements."""

    async def visit() -> Answer:
        async with opened(connection) as site:
            return await work(site, *args, **options)

    return asyncio.run(visit())


@cache
def pool(count: int) -> list[list[float]]:
    """Vectors that are all different, and the same in every run."""
    chance = random.Random(1)
    return [[chance.uniform(-1, 1) for _ in range(DIMENSIONS)] for _ in range(count)]


@cache
def packed(count: int) -> list[Vector]:
    """The same as they come from a provider."""
    return [vector_of(numbers) for numbers in pool(count)]


class PoolEmbedder:
    """A provider that costs nothing but its latency."""

    model = MODEL
    dimensions = DIMENSIONS
    limits = RequestLimits.for_dimensions(DIMENSIONS)

    def __init__(self, *, latency: timedelta = timedelta(0)) -> None:
        self._latency = latency.total_seconds()
        self._vectors = packed(BATCH)

    def prepare(self, text: str) -> PreparedText:
        """Count tokens as for OpenAI."""
        return prepare(text, max_tokens=self.limits.tokens_per_input)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Hand out vectors in turn."""
        await asyncio.sleep(self._latency)
        vectors = self._vectors
        return Embedded([vectors[n % BATCH] for n in range(len(texts))], tokens=len(texts))

    async def close(self) -> None:
        """Nothing is open."""
