"""Many workers at once, and the proof that these tests would notice."""

import asyncio
import random
from collections import Counter
from datetime import timedelta
from typing import Protocol

import pytest
from neo4j import AsyncManagedTransaction

from embed_pipeline.domain.errors import TransitionRefusedError
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.results import Completion, CompletionOutcome
from tests.support.queue_harness import (
    LEASE,
    MODEL,
    VECTOR,
    Neo4jUnderTest,
    assert_consistent,
    enqueue_in,
    hash_for,
)

COMPLETED = CompletionOutcome.COMPLETED

PLAIN_LEASE = """
MATCH (j:EmbedJob {status: 'pending'})
WITH j ORDER BY j.priority DESC, j.created_at LIMIT $limit
SET j.status = 'processing', j.lock_owner = $owner, j.attempts = j.attempts + 1
RETURN j.id AS id
"""
"""The lease as the requirements write it: it checks, and then it writes."""


class LeaseIds(Protocol):
    async def __call__(self, queue: Neo4jUnderTest, owner: str, limit: int) -> list[str]: ...


async def lease_of_the_store(queue: Neo4jUnderTest, owner: str, limit: int) -> list[str]:
    return [item.lease.job_id for item in (await queue.lease(owner=owner, limit=limit)).jobs]


async def plain_lease(queue: Neo4jUnderTest, owner: str, limit: int) -> list[str]:
    async def work(tx: AsyncManagedTransaction) -> list[str]:
        result = await tx.run(PLAIN_LEASE, owner=owner, limit=limit)
        return [record["id"] async for record in result]

    async with queue.driver.session(
        database=queue.database, max_transaction_retry_time=30.0
    ) as session:
        return await session.execute_write(work)


async def given_many(queue: Neo4jUnderTest, number: int) -> None:
    await queue.run(
        """
        UNWIND range(1, $number) AS n
        CREATE (:Entity {name: 'e' + n, entityType: 'test', observations: ['text'], version: 1})
        """,
        number=number,
    )
    wishes = [NewJob(f"e{n}", MODEL, priority=n % 3) for n in range(1, number + 1)]
    await queue.admin.enqueue(wishes)


async def leased_by(
    queue: Neo4jUnderTest, lease: LeaseIds, *, workers: int, batch: int
) -> Counter[str]:
    """Let workers lease until nothing is left; how often was each job given out?"""

    async def worker(name: str) -> list[str]:
        ids: list[str] = []
        while page := await lease(queue, name, batch):
            ids += page
        return ids

    pages = await asyncio.gather(*(worker(f"worker-{n}") for n in range(workers)))
    return Counter(id_ for page in pages for id_ in page)


@pytest.mark.parametrize(("workers", "jobs"), [(8, 500), (2, 1000)])
async def test_m7_m45_no_job_is_leased_by_two(
    queue: Neo4jUnderTest, workers: int, jobs: int
) -> None:
    await given_many(queue, jobs)

    given_out = await leased_by(queue, lease_of_the_store, workers=workers, batch=10)

    assert len(given_out) == jobs
    assert set(given_out.values()) == {1}


async def test_no_worker_goes_away_empty_while_jobs_wait(queue: Neo4jUnderTest) -> None:
    """The mutex: without it all workers want the same jobs, and all but one get none."""
    await given_many(queue, 80)

    batches = await asyncio.gather(*(queue.lease(owner=f"worker-{n}", limit=10) for n in range(8)))

    assert [len(batch.jobs) for batch in batches] == [10] * 8


async def test_of_the_test_the_plain_query_leases_jobs_twice(queue: Neo4jUnderTest) -> None:
    await given_many(queue, 500)

    given_out = await leased_by(queue, plain_lease, workers=8, batch=10)

    assert sum(times > 1 for times in given_out.values()) > 0


async def test_m7_m45_each_job_completes_exactly_once_among_rivals(queue: Neo4jUnderTest) -> None:
    """8 workers with recovery, heartbeats, cancels and a clock that makes leases expire."""
    await given_many(queue, 500)
    rng = random.Random(7)
    fences: Counter[tuple[str, int]] = Counter()
    completions: Counter[str] = Counter()
    cancelled: set[str] = set()
    is_over = asyncio.Event()

    async def worker(name: str) -> None:
        while not is_over.is_set():
            items = (await queue.lease(owner=name, limit=10)).jobs
            if not items:
                await queue.jobs.recover_expired(limit=50)
                queue.clock.advance(timedelta(seconds=10))
                await asyncio.sleep(0.01)
                continue
            fences.update((item.lease.job_id, item.lease.fence) for item in items)
            if rng.random() < 0.1:
                continue  # this worker dies here
            leases = [item.lease for item in items]
            if rng.random() < 0.3:
                beat = await queue.jobs.heartbeat(leases, duration=LEASE)
                leases = list(beat.held)
            if rng.random() < 0.2:
                await queue.jobs.release(leases[5:])
            rows = [Completion(x, VECTOR, hash_for(x.entity_uid)) for x in leases]
            outcomes = await queue.jobs.complete(rows)
            completions.update(
                row.lease.job_id
                for row, outcome in zip(rows, outcomes, strict=True)
                if outcome is COMPLETED
            )

    async def operator() -> None:
        ids = [node["id"] for node in await queue.nodes()]
        for id_ in rng.sample(ids, 40):
            try:
                await queue.admin.cancel_job(id_, by="operator")
                cancelled.add(id_)
            except TransitionRefusedError:
                pass
            queue.clock.advance(timedelta(seconds=30))
            await queue.jobs.recover_expired(limit=20)

    async def referee() -> None:
        while True:
            counts = await queue.admin.counts()
            if counts[JobStatus.PENDING] + counts[JobStatus.PROCESSING] == 0:
                is_over.set()
                return
            await asyncio.sleep(0.2)

    await asyncio.gather(*(worker(f"worker-{n}") for n in range(8)), operator(), referee())

    nodes = await queue.nodes()
    assert_consistent(nodes)
    assert set(fences.values()) == {1}
    by_status = Counter(node["status"] for node in nodes)
    assert len(nodes) == 500
    assert set(completions.values()) == {1}
    assert set(completions) == {node["id"] for node in nodes if node["status"] == "completed"}
    assert cancelled == {node["id"] for node in nodes if node["status"] == "cancelled"}
    assert by_status["completed"] > 400
    vectors = await queue.run(
        "MATCH (e:Entity) WHERE e.embedding IS NOT NULL RETURN count(e) AS vectors"
    )
    assert vectors[0]["vectors"] == by_status["completed"]


async def test_users_who_change_entities_and_workers_do_not_deadlock(
    queue: Neo4jUnderTest,
) -> None:
    """Writers change the text of entities whose completions are under way."""
    await given_many(queue, 200)

    async def writer(seed: int) -> None:
        rng = random.Random(seed)
        for n in range(40):
            uid = f"e{rng.randint(1, 200)}"
            async with (
                queue.driver.session(database=queue.database) as session,
                await session.begin_transaction() as tx,
            ):
                await tx.run(
                    "MATCH (e:Entity {name: $uid}) SET e.observations = [$text]",
                    uid=uid,
                    text=f"{seed}-{n}",
                )
                wish = NewJob(uid, MODEL, text_hash=hash_for(uid, f"{seed}-{n}"))
                await enqueue_in(queue.queue, tx, [wish])
                await tx.commit()

    async def worker(name: str) -> None:
        for _ in range(40):
            items = (await queue.lease(owner=name, limit=20)).jobs
            loaded = await queue.jobs.load([item.lease for item in items])
            rows = [
                Completion(x.lease, VECTOR, hash_for(x.lease.entity_uid, text))
                for x in loaded
                for text in x.properties.get("observations", [])
            ]
            await queue.jobs.complete(rows)

    await asyncio.gather(*(writer(n) for n in range(4)), *(worker(f"worker-{n}") for n in range(4)))
    await worker("last")

    texts = await queue.run(
        "MATCH (e:Entity) RETURN e.name AS uid, e.observations[0] AS text, e.embedding_hash AS hash"
    )
    assert all(row["hash"] == hash_for(row["uid"], row["text"]) for row in texts)
