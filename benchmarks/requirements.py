"""Item 2: the same work by the queries that the requirements suggest.

Only their recovery is given word for word; lease and completion say in the same way what the text
says of them: check and write in one statement, one request and two transactions for every job.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final, LiteralString

from neo4j import AsyncManagedTransaction

from benchmarks.contestants import LEASE, drain, hash_of
from benchmarks.crew import Crew, hired
from benchmarks.plan import Plan
from benchmarks.site import BATCH, MODEL, Site, on_site
from benchmarks.table import Line, at_least, at_most, per_second, ratios
from embed_pipeline.domain.embedding import RequestLimits
from embed_pipeline.store.connection import Connection

LATENCY: Final = timedelta(milliseconds=50)
JOBS_PER_LEASE: Final = 10
RIVALS: Final = 4
GOAL: Final = at_least(100)

LEASE_JOBS: Final[LiteralString] = """
MATCH (job:EmbedJob)
WHERE job.status = 'pending' OR (job.status = 'processing' AND job.lock_until < timestamp())
WITH job ORDER BY job.priority DESC, job.created_at LIMIT $limit
SET job.status = 'processing', job.lock_owner = $owner, job.lock_until = timestamp() + $duration,
    job.attempts = job.attempts + 1
RETURN job.id AS id, job.entity_uid AS uid
"""
STORE_VECTOR: Final[LiteralString] = """
MATCH (e:Entity {name: $uid}) WHERE e.validTo IS NULL
SET e.embedding = $vector, e.embedding_model = $model, e.embedding_hash = $hash
"""
COMPLETE_JOB: Final[LiteralString] = """
MATCH (job:EmbedJob {id: $id})
WHERE job.lock_owner = $owner
SET job.status = 'completed', job.processed_at = timestamp(), job.lock_owner = null,
    job.lock_until = null
"""


def lines(connection: Connection, plan: Plan) -> Iterator[Line]:
    """Compare throughput, then count what is given out twice."""
    plain: list[float] = []
    ours: list[float] = []
    on_site(connection, Site.prepare, plan.entities, has_index=False)
    with hired(RIVALS, connection) as crew:
        for _ in range(plan.rounds):
            plain.append(_plain_rate(crew, connection, plan))
            ours.append(_our_rate(crew, connection, plan))
        twice = _doubles(crew, connection, plan, lease_plainly)
        ours_twice = _doubles(crew, connection, plan, lease_fenced)
    yield Line(
        2,
        "a drain, against the requirements' queries; the provider takes 50 ms per request",
        f"{per_second(ours)} against {per_second(plain)}",
        ratios(ours, plain),
        GOAL,
    )
    yield Line(
        2,
        f"jobs given out twice, {RIVALS} processes at once",
        f"{ours_twice:.1%} by our lease, {twice:.1%} by the requirements'",
        [ours_twice],
        at_most(0),
    )


def _plain_rate(crew: Crew, connection: Connection, plan: Plan) -> float:
    on_site(connection, Site.reset, plan.entities, jobs=True)
    return plan.plain_jobs / crew.work(work_plainly, (plan.plain_jobs,)).seconds


def _our_rate(crew: Crew, connection: Connection, plan: Plan) -> float:
    on_site(connection, Site.reset, plan.entities, jobs=True)
    seconds = crew.work(drain, ("owner", LATENCY, RequestLimits().inputs)).seconds
    on_site(connection, Site.check, plan.entities)
    return plan.entities / seconds


def _doubles(crew: Crew, connection: Connection, plan: Plan, lease: Any) -> float:
    """The share of the jobs that more than one process was given."""
    jobs = plan.entities // 2
    on_site(connection, Site.reset, jobs, jobs=True)
    shift = crew.work(lease, *((f"owner-{n}",) for n in range(RIVALS)))
    given = Counter(job for answer in shift.answers for job in answer)
    return sum(times > 1 for times in given.values()) / jobs


async def work_plainly(site: Site, jobs: int) -> int:
    """Lease, ask, store, complete; one job at a time."""
    done = 0
    while done < jobs:
        for job in await _lease(site, "owner"):
            await asyncio.sleep(LATENCY.total_seconds())
            await site.run(
                STORE_VECTOR,
                uid=job["uid"],
                vector=site.numbers[done % BATCH],
                model=MODEL,
                hash=hash_of(job["uid"]),
            )
            await site.run(COMPLETE_JOB, id=job["id"], owner="owner")
            done += 1
    return done


async def lease_plainly(site: Site, owner: str) -> list[str]:
    """Lease until nothing is left."""
    leased: list[str] = []
    while jobs := await _lease(site, owner):
        leased += [job["id"] for job in jobs]
    return leased


async def lease_fenced(site: Site, owner: str) -> list[str]:
    """Lease in batches of the same size through our store, until nothing is left."""
    leased: list[str] = []
    lease = site.queue.jobs.lease
    while batch := (
        await lease(owner=owner, model=MODEL, limit=JOBS_PER_LEASE, duration=LEASE)
    ).jobs:
        leased += [item.lease.job_id for item in batch]
    return leased


async def _lease(site: Site, owner: str) -> list[dict[str, Any]]:
    async def work(tx: AsyncManagedTransaction) -> list[dict[str, Any]]:
        milliseconds = LEASE // timedelta(milliseconds=1)
        result = await tx.run(LEASE_JOBS, owner=owner, limit=JOBS_PER_LEASE, duration=milliseconds)
        return await result.data()

    # Repeated by the driver: four of them at once deadlock now and then, some of them for long.
    async with site.driver.session(
        database=site.connection.database, max_transaction_retry_time=60.0
    ) as session:
        return await session.execute_write(work)
