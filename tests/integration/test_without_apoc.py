"""The queue on the current Neo4j, which comes without APOC.

What a worker and an operator do is in the contract suite, which runs on this server too. Here is
the rest: what that suite does not reach, and what APOC is needed for, which says so.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import pytest

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.errors import ApocMissingError
from embed_pipeline.domain.job import JobStatus, Lease, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.results import CompletionOutcome
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.store import schema, server_info
from embed_pipeline.store.search import nearest, search_entities
from tests.conftest import TestServer
from tests.support.project import make_project
from tests.support.queue_harness import DIMENSIONS, MODEL, SHAPE, Neo4jUnderTest, assert_consistent

WEEK = timedelta(days=7)
WORKERS, JOBS, BATCH = 4, 200, 10


@pytest.fixture(scope="module")
def neo4j_server(neo4j_2026_server: TestServer) -> TestServer:
    """Takes the place of the server that the other tests use."""
    return neo4j_2026_server


async def test_this_server_is_the_current_one_and_has_no_apoc(queue: Neo4jUnderTest) -> None:
    info = await server_info.read(queue.driver, database=queue.database)

    assert info.version.startswith("2026.")
    assert (info.is_supported, info.apoc) == (True, None)


async def test_a_complete_schema_is_recognised(queue: Neo4jUnderTest) -> None:
    again = await schema.install(
        queue.driver, database=queue.database, shape=SHAPE, dimensions=DIMENSIONS
    )
    state = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)

    assert again.created == ()
    assert (state.problem, state.version) == (None, again.version)
    assert state.vector_index is not None
    assert (state.vector_index.dimensions, state.vector_index.similarity) == (DIMENSIONS, "cosine")


async def test_the_vector_of_a_completion_is_found_by_search(queue: Neo4jUnderTest) -> None:
    near, far = await queue.leased("near", "far")
    await queue.complete(near.lease, vector=vector_of([1.0, 0.1, 0.0, 0.0]))
    await queue.complete(far.lease, vector=vector_of([0.0, 0.0, 1.0, 0.1]))

    # The index follows the commit at its own pace.
    await queue.run("CALL db.awaitIndexes(60)")
    found = await queue.run(
        """
        CALL db.index.vector.queryNodes('entity_embeddings', 2, $vector) YIELD node, score
        RETURN node.name AS name ORDER BY score DESC
        """,
        vector=[1.0, 0.0, 0.0, 0.0],
    )

    assert [row["name"] for row in found] == ["near", "far"]


@pytest.mark.parametrize("filters", ["", "WITH [n.embedding_model, n.validTo]"])
async def test_the_clause_finds_what_is_current_and_of_the_model(
    queue: Neo4jUnderTest, filters: LiteralString
) -> None:
    await queue.run("DROP INDEX entity_embeddings")
    await queue.run(
        f"CYPHER 25 CREATE VECTOR INDEX entity_embeddings FOR (n:Entity) ON n.embedding {filters}"
        " OPTIONS {indexConfig: {`vector.dimensions`: 4, `vector.similarity_function`: 'cosine'}}"
    )
    await queue.run(
        """
        UNWIND range(1, 300) AS n
        CREATE (e:Entity {name: 'e' + n, entityType: 't', version: 1, observations: ['text'],
          embedding: [1.0, n / 1000.0, 0.0, 0.0], embedding_hash: 'h' + n,
          embedding_model: CASE WHEN n > 295 THEN $model ELSE 'another' END})
        SET e.validTo = CASE WHEN n > 297 THEN null ELSE n END
        """,
        model=MODEL,
    )
    await queue.run("CALL db.awaitIndexes(60)")

    state = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)
    hits = await search_entities(
        queue.queue.database,
        queue.config,
        vector=vector_of([1.0, 0.0, 0.0, 0.0]),
        model=MODEL,
        limit=3,
    )
    await queue.run("DROP INDEX entity_embeddings")
    await queue.install()

    assert state.problem is None
    assert state.vector_index is not None
    assert "CYPHER 25" in nearest(state.vector_index, SHAPE, server=state.server)
    # 297 others are nearer: the index passes them over, or more candidates are asked for.
    assert [hit.uid for hit in hits or ()] == ["e298", "e299", "e300"]


async def test_several_workers_complete_every_job_once(queue: Neo4jUnderTest) -> None:
    uids = [f"e{number:03}" for number in range(JOBS)]
    await queue.run(
        """
        UNWIND $uids AS uid
        CREATE (:Entity {name: uid, entityType: 'test', observations: ['text'], version: 1})
        """,
        uids=uids,
    )
    await queue.admin.enqueue([NewJob(uid, MODEL) for uid in uids])
    leased: Counter[str] = Counter()
    completed: Counter[str] = Counter()

    async def work(lease: Lease) -> None:
        [outcome] = await queue.complete(lease)
        completed[lease.entity_uid] += outcome is CompletionOutcome.COMPLETED

    async def worker(owner: str) -> None:
        while batch := (await queue.lease(owner=owner, limit=BATCH)).jobs:
            leased.update(item.lease.entity_uid for item in batch)
            await asyncio.gather(*(work(item.lease) for item in batch))

    await asyncio.gather(*(worker(f"worker-{number}") for number in range(WORKERS)))

    assert leased == completed == dict.fromkeys(uids, 1)
    nodes = await queue.nodes()
    assert {(node["status"], node["fence"]) for node in nodes} == {("completed", 1)}
    assert_consistent(nodes)


async def test_the_figures_are_read(queue: Neo4jUnderTest) -> None:
    await queue.in_state("done", JobStatus.COMPLETED)
    await queue.in_state("bad", JobStatus.FAILED)
    [item] = await queue.leased("held")
    await queue.expire()

    metrics = await queue.queue.metrics.read(window=timedelta(minutes=10))

    assert metrics.counts == {
        JobStatus.PENDING: 0,
        JobStatus.PROCESSING: 1,
        JobStatus.COMPLETED: 1,
        JobStatus.FAILED: 1,
        JobStatus.CANCELLED: 0,
    }
    assert (metrics.completed_in_window, metrics.failed_in_window) == (1, 1)
    assert metrics.expired_leases == 1
    assert [job.job_id for job in await queue.jobs.recover_expired(limit=10)] == [item.lease.job_id]


async def test_all_workers_share_one_rate_limit(queue: Neo4jUnderTest) -> None:
    limiter = queue.queue.limiter(RateLimits(requests=5, interval=timedelta(minutes=1)))

    grants = await asyncio.gather(*(limiter.acquire(tokens=100) for _ in range(20)))
    queue.clock.advance(timedelta(minutes=2))
    later = await limiter.acquire()
    await limiter.hold(timedelta(seconds=30), owner="run-1", said="slow down")

    assert sum(grant.is_granted for grant in grants) == 5
    assert later.is_granted
    assert (await limiter.acquire()).wait == timedelta(seconds=30)


async def test_the_scan_finds_what_no_trigger_reported(queue: Neo4jUnderTest) -> None:
    await queue.in_state("current", JobStatus.COMPLETED)
    await queue.in_state("changed", JobStatus.COMPLETED)
    await queue.put_entity("changed", "other")
    await queue.put_entity("new")

    page = await queue.queue.reconciler(MODEL).page()

    assert {kind: count for kind, count in page.coverage.items() if count} == {
        Coverage.CURRENT: 1,
        Coverage.STALE: 1,
        Coverage.MISSING: 1,
    }
    assert page.enqueued == {EnqueueOutcome.REVIVED: 1, EnqueueOutcome.CREATED: 1}
    assert await queue.statuses("changed", "new") == [JobStatus.PENDING] * 2


async def test_the_cleanup_does_without_apoc_and_says_so(
    queue: Neo4jUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        await queue.in_state(f"old-{status}", status)
    queue.clock.advance(WEEK)
    await queue.in_state("young", JobStatus.COMPLETED)
    await queue.in_state("waiting", JobStatus.PENDING)
    queue.clock.advance(timedelta(minutes=1))

    report = await queue.queue.purge.purge_terminal(retention=WEEK)

    assert (report.deleted, report.used_apoc) == (3, False)
    assert {node["entity_uid"] for node in await queue.nodes()} == {"young", "waiting"}
    assert "APOC is missing (apoc.periodic.iterate)" in caplog.text


async def test_installing_the_trigger_says_what_it_needs_and_what_helps(
    queue: Neo4jUnderTest,
) -> None:
    triggers = queue.queue.triggers(MODEL)

    with pytest.raises(ApocMissingError, match=r"need APOC core .* the reconcile scan finds"):
        await triggers.install()

    assert not (await triggers.inspect()).is_installed


async def test_doctor_warns_about_apoc_and_finds_nothing_wrong(
    queue: Neo4jUnderTest, neo4j_server: TestServer, tmp_path: Path
) -> None:
    made = make_project(tmp_path)
    settings = {**neo4j_server.environment, "EMBEDDING_DIMENSIONS": str(DIMENSIONS)}

    result = await asyncio.to_thread(made.run, "doctor", **settings)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "✓ Neo4j 2026." in result.stdout
    assert "! APOC not installed → Install APOC Core" in result.stdout
    assert "✓ Schema" in result.stdout
