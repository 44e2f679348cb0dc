"""Those who write vectors: without a queue, through ours, and as the requirements wrote it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import Any, Final, LiteralString

from neo4j import AsyncManagedTransaction

from benchmarks.site import BATCH, MODEL, PoolEmbedder, Site, opened
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.ports import Embedder, JobStore
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import memento_text, recipe_of, render_for, text_hash
from embed_pipeline.store.database import QuietList
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.lease_keeper import OpenStore
from embed_pipeline.worker.options import DrainOptions, Parts

LEASE: Final = timedelta(minutes=5)
UNLIMITED: Final = RateLimits(requests=1_000_000, interval=timedelta(seconds=1))

WRITE: Final[LiteralString] = """
UNWIND $rows AS row
MATCH (entity:Entity {name: row.uid}) WHERE entity.validTo IS NULL
CALL db.create.setNodeVectorProperty(entity, 'embedding', row.vector)
SET entity.embedding_model = row.model, entity.embedding_hash = row.text_hash,
    entity.embedding_version = row.version, entity.embedding_job = row.id
"""


async def write(site: Site, first: int, last: int) -> int:
    """The limit: the same properties on the same entities, in batches, and nothing else."""
    for start in range(first, last, BATCH):
        # Not formatted for the driver's debug line, as in the queue.
        rows = QuietList(
            {
                "id": f"job-of-entity-number-{number}",
                "uid": f"e{number}",
                "model": MODEL,
                "version": 1,
                "text_hash": hash_of(f"e{number}"),
                "vector": site.numbers[number % BATCH],
            }
            for number in range(start, min(start + BATCH, last))
        )

        async def work(tx: AsyncManagedTransaction, rows: Sequence[Any] = rows) -> None:
            await (await tx.run(WRITE, rows=rows)).consume()

        async with site.driver.session(database=site.connection.database) as session:
            await session.execute_write(work)
    return last - first


async def lease_beat_complete(site: Site, owner: str, batches: int) -> int:
    """Our store, with a heartbeat for every batch and some batches under way, as in a drain."""
    tasks = (_one_after_the_other(site, f"{owner}/{number}") for number in range(batches))
    return sum(await asyncio.gather(*tasks))


async def _one_after_the_other(site: Site, owner: str) -> int:
    jobs, done = site.queue.jobs, 0
    while batch := (await jobs.lease(owner=owner, model=MODEL, limit=BATCH, duration=LEASE)).jobs:
        await jobs.heartbeat([leased.lease for leased in batch], duration=LEASE)
        await jobs.complete(
            [
                Completion(
                    leased.lease, site.vectors[n], hash_of(leased.lease.entity_uid), tokens=3
                )
                for n, leased in enumerate(batch)
            ]
        )
        done += len(batch)
    return done


async def drain(
    site: Site,
    owner: str,
    latency: timedelta = timedelta(0),
    inputs: int = BATCH,
    embedder: Embedder | None = None,
) -> int:
    """A whole drain: reads, renders and counts texts, looks for known vectors, asks the limit."""
    shape = EntityShape()
    parts = Parts(
        store=site.queue.jobs,
        open_store=same_store(site),
        limiter=site.queue.limiter(UNLIMITED),
        switch=site.queue.switch,
        counters=site.queue.admin,
        embedder=embedder or PoolEmbedder(latency=latency),
        render=render_for(shape),
        recipe=recipe_of(shape),
    )
    options = DrainOptions(jobs_per_lease=inputs, jobs_per_request=inputs)
    report = await Drain(parts, owner=owner, options=options).run()
    return report.completed


def same_store(site: Site) -> OpenStore:
    """How the heartbeat of a drain gets at the store."""

    @asynccontextmanager
    async def open_store() -> AsyncGenerator[JobStore]:
        async with opened(site.connection) as other:
            yield other.queue.jobs

    return open_store


@cache
def hash_of(uid: str) -> str:
    """The hash of the text of an entity of ``site``."""
    properties = {"name": uid, "entityType": "thing", "observations": f'["{uid[1:]}"]'}
    return text_hash(memento_text(properties))
