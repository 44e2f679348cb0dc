"""The scan: finds what nobody reported, without APOC and without triggers."""

from collections.abc import AsyncIterator

import pytest

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.domain.results import Completion
from embed_pipeline.store import schema
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.queue import open_queue
from tests.support.queue_harness import DIMENSIONS, MODEL, NUMBERS, VECTOR, Neo4jUnderTest, pages_of

PENDING, COMPLETED = JobStatus.PENDING, JobStatus.COMPLETED


async def found(queue: Neo4jUnderTest, **options: bool) -> dict[Coverage, int]:
    coverage = await queue.coverage(**options)
    return {kind: number for kind, number in coverage.items() if number}


async def test_a_client_of_its_own_is_found(queue: Neo4jUnderTest) -> None:
    await queue.run("CREATE (:Entity {name: 'ada', observations: '[\"x\"]'})")

    page = await queue.queue.reconciler(MODEL).page()

    assert page.enqueued == {EnqueueOutcome.CREATED: 1}
    assert (await queue.job("ada")).status is PENDING


async def test_what_is_current_is_left_alone(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", COMPLETED)

    assert await found(queue) == {Coverage.CURRENT: 1}
    assert (await queue.job("ada")).status is COMPLETED


async def test_a_changed_text_is_stale(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", COMPLETED)
    await queue.put_entity("ada", "changed without a version")

    assert await found(queue) == {Coverage.STALE: 1}
    assert (await queue.job("ada")).status is PENDING


async def test_a_new_version_is_stale(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", COMPLETED)
    await queue.put_entity("ada", version=2)

    assert await found(queue) == {Coverage.STALE: 1}
    assert (await queue.job("ada", version=2)).status is PENDING


async def test_a_vector_of_another_model_is_found(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", COMPLETED)

    page = await queue.queue.reconciler("new-model").page()

    assert page.coverage[Coverage.WRONG_MODEL] == 1
    jobs = await queue.admin.find_jobs(JobFilter(model="new-model"))
    assert [job.status for job in jobs] == [PENDING]


async def test_a_vector_of_another_length_is_found(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", COMPLETED)
    config = QueueConfig(dimensions=DIMENSIONS + 1)
    longer = open_queue(queue.driver, database=queue.database, config=config, clock=queue.clock)

    page = await longer.reconciler(MODEL).page()

    assert page.coverage[Coverage.WRONG_MODEL] == 1
    assert (await queue.job("ada")).status is PENDING


async def test_a_lost_vector_is_made_again(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", COMPLETED)
    await queue.run("MATCH (e:Entity) REMOVE e.embedding, e.embedding_hash")

    assert await found(queue) == {Coverage.MISSING: 1}
    assert (await queue.job("ada")).status is PENDING


async def test_m136_a_vector_of_unknown_origin_is_foreign(queue: Neo4jUnderTest) -> None:
    await queue.run("CREATE (:Entity {name: 'ada', embedding: $vector})", vector=NUMBERS)

    assert await found(queue) == {Coverage.FOREIGN: 1}
    assert (await queue.job("ada")).status is PENDING


async def test_a_failed_job_is_not_tried_for_ever(queue: Neo4jUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.fail(item.lease, category=ErrorCategory.PERMANENT)

    await found(queue)
    same = (await queue.job("ada")).status
    await queue.put_entity("ada", "another text")
    await found(queue)

    assert same is JobStatus.FAILED
    assert (await queue.job("ada")).status is PENDING


async def test_what_an_operator_cancelled_stays_cancelled(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", JobStatus.CANCELLED)

    await found(queue)
    await found(queue)

    assert (await queue.job("ada")).status is JobStatus.CANCELLED


async def test_m137_vectors_of_history_are_removed(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", COMPLETED)
    await queue.run("MATCH (e:Entity {name: 'ada'}) SET e.validTo = 1")
    reconciler = queue.queue.reconciler(MODEL)

    counted = await reconciler.page(dry_run=True)
    cleared = await reconciler.page()
    after = await reconciler.page()

    assert (counted.orphaned, cleared.orphaned, after.orphaned) == (1, 1, 0)
    assert (counted.cleared, cleared.cleared) == (0, 1)
    assert await queue.vector("ada") is None


async def test_the_scan_goes_page_by_page_and_may_stop_anywhere(queue: Neo4jUnderTest) -> None:
    await queue.run("UNWIND range(10, 34) AS n CREATE (:Entity {name: 'e' + n})")
    reconciler = queue.queue.reconciler(MODEL)

    first = await reconciler.page(limit=10)
    assert first.cursor == "e19"
    rest = await pages_of(reconciler, after=first.cursor, limit=10)
    again = await pages_of(reconciler, limit=7)

    assert [page.scanned for page in rest] == [10, 5]
    assert sum(page.scanned for page in again) == 25
    assert sum(page.waiting for page in again) == 25
    assert len(await queue.nodes()) == 25


async def test_a_dry_run_only_counts(queue: Neo4jUnderTest) -> None:
    await queue.put_entity("ada")

    assert await found(queue, dry_run=True) == {Coverage.MISSING: 1}
    assert await queue.nodes() == []


@pytest.fixture
async def other_graph(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    """A graph with names of its own."""
    shape = EntityShape(
        label="Document", key="uri", version="rev", valid_to="deleted", vector="vec", type="kind"
    )
    await drop_entity_indexes(queue)
    await schema.install(queue.driver, database=queue.database, shape=shape, dimensions=DIMENSIONS)
    config = QueueConfig(shape=shape, roll=lambda: 0.0)
    yield Neo4jUnderTest(queue.driver, queue.database, queue.clock, config)
    await queue.run("MATCH (d:Document) DETACH DELETE d")
    await drop_entity_indexes(queue)


async def drop_entity_indexes(queue: Neo4jUnderTest) -> None:
    for name in ("entity_embeddings", "embed_entity_key", "embed_entity_hash"):
        await queue.run("DROP INDEX $name IF EXISTS", name=name)


async def test_other_graphs_work_too(other_graph: Neo4jUnderTest) -> None:
    queue = other_graph
    await queue.run("CREATE (:Document {uri: 'urn:1', kind: 'page', observations: ['x'], rev: 4})")

    await queue.queue.reconciler(MODEL).page()
    [item] = (await queue.lease()).jobs
    [loaded] = await queue.jobs.load([item.lease])
    hash_ = queue.config.hash_of(loaded.properties)
    await queue.jobs.complete([Completion(item.lease, VECTOR, hash_)])

    rows = await queue.run("MATCH (d:Document) RETURN d.vec AS vector, d.vec_version AS version")
    assert rows == [{"vector": NUMBERS, "version": 4}]
