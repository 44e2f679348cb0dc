"""Smaller promises that only the database can keep."""

import asyncio
from datetime import timedelta

import pytest

from embed_pipeline.domain.errors import ConfigurationError, InvalidJobError, PermanentError
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.domain.results import CompletionOutcome
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.store.config import QueueConfig
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queue_harness import DIMENSIONS, MODEL, NUMBERS, VECTOR, Neo4jUnderTest, hash_for


async def test_a_text_that_was_embedded_before_is_found_by_its_hash(
    queue: Neo4jUnderTest,
) -> None:
    await queue.in_state("ada", JobStatus.COMPLETED)
    known, unknown = hash_for("ada"), hash_for("bob")

    found = await queue.jobs.find_vectors([known, unknown], model=MODEL, dimensions=DIMENSIONS)
    other_model = await queue.jobs.find_vectors([known], model="other", dimensions=DIMENSIONS)
    other_length = await queue.jobs.find_vectors([known], model=MODEL, dimensions=8)

    assert found == {known: VECTOR}
    assert (other_model, other_length) == ({}, {})


@pytest.mark.parametrize(
    "vector",
    [
        [],
        [0.0] * 4,
        [1.0, float("nan"), 1.0, 1.0],
        [1.0, float("inf"), 1.0, 1.0],
        [1e39, 1.0, 1.0, 1.0],
        [1e-40] * 4,
        [1.0] * 3,
        [1.0] * 5,
    ],
)
async def test_i17_a_vector_that_no_index_would_find_is_refused(
    queue: Neo4jUnderTest, vector: list[float]
) -> None:
    queue.config = QueueConfig(dimensions=DIMENSIONS)
    queue.__post_init__()
    [item] = await queue.leased("ada")

    with pytest.raises(PermanentError):
        await queue.complete(item.lease, vector=vector_of(vector))

    assert (await queue.job("ada")).status is JobStatus.PROCESSING


async def test_vectors_are_found_by_the_index_as_soon_as_the_job_is_completed(
    queue: Neo4jUnderTest,
) -> None:
    [item] = await queue.leased("ada")
    await queue.complete(item.lease)
    await queue.run("CALL db.awaitIndexes(60)")

    rows = await queue.run(
        """
        CALL db.index.vector.queryNodes('entity_embeddings', 1, $vector) YIELD node
        RETURN node.name AS name, node.embedding_job AS job
        """,
        vector=NUMBERS,
    )

    assert rows == [{"name": "ada", "job": item.lease.job_id}]


async def test_a_completion_leaves_nothing_but_the_vector_and_its_origin(
    queue: Neo4jUnderTest,
) -> None:
    first, second = await queue.leased("ada", "bob")
    await queue.put_entity("bob", "moved")

    await queue.complete(first.lease, second.lease)

    rows = await queue.run("MATCH (e:Entity) RETURN e.name AS name, keys(e) AS keys")
    keys = {row["name"]: set(row["keys"]) for row in rows}
    own = {"name", "entityType", "observations", "version"}
    shape = queue.config.shape
    # The number of pieces only where there are several.
    origin = {"embedding", *shape.provenance} - {shape.vector_pieces}
    assert keys == {"ada": own | origin, "bob": own}


@pytest.mark.parametrize("minutes", [0, -1, 61])
async def test_a_lease_has_a_length_that_recovery_understands(
    queue: Neo4jUnderTest, minutes: int
) -> None:
    with pytest.raises(ConfigurationError):
        await queue.lease(duration=timedelta(minutes=minutes))


async def test_a_lease_needs_an_owner_and_a_limit(queue: Neo4jUnderTest) -> None:
    with pytest.raises(InvalidJobError):
        await queue.lease(owner="")
    with pytest.raises(InvalidJobError):
        await queue.lease(limit=0)


async def test_only_known_events_are_counted(queue: Neo4jUnderTest) -> None:
    with pytest.raises(ValueError, match="unknown counters"):
        await queue.admin.count({"typos": 1})


async def test_i16_a_worker_suspended_inside_a_transaction_blocks_others_for_a_while_only(
    queue: Neo4jUnderTest,
) -> None:
    """Somebody holds the mutex of the queue and does not move on."""
    await queue.given_jobs("ada")
    session = queue.driver.session(database=queue.database)
    stuck = await session.begin_transaction(timeout=1.0)
    await stuck.run("MATCH (q:EmbedQueue) SET q._lock = 1")

    batch = await asyncio.wait_for(queue.lease(), timeout=PATIENCE_SECONDS)

    assert len(batch.jobs) == 1
    await stuck.close()
    await session.close()


async def test_enqueue_of_many_pages_answers_for_each(queue: Neo4jUnderTest) -> None:
    wishes = [NewJob(f"e{n}", MODEL) for n in range(2_300)]

    outcomes = await queue.admin.enqueue(wishes)
    report = await queue.admin.cancel(JobFilter(), by="operator")

    assert len(outcomes) == 2_300
    assert (report.count, len(report.job_ids)) == (2_300, 1_000)
    assert (await queue.admin.counts())[JobStatus.CANCELLED] == 2_300


async def test_a_heartbeat_that_waited_for_a_lock_counts_from_the_end_of_the_wait(
    queue: Neo4jUnderTest,
) -> None:
    """With the server's own clock: what it wrote must not lie in the past already."""
    queue.clock = None  # pyright: ignore[reportAttributeAccessIssue]
    queue.__post_init__()
    await queue.put_entity("ada")
    await queue.admin.enqueue([NewJob("ada", MODEL)])
    [item] = (await queue.lease(duration=timedelta(seconds=5))).jobs
    session = queue.driver.session(database=queue.database)
    holder = await session.begin_transaction()
    await holder.run("MATCH (j:EmbedJob) SET j._lock = 1")

    waiting = asyncio.create_task(queue.jobs.heartbeat([item.lease], duration=timedelta(seconds=1)))
    await asyncio.sleep(1.5)
    await holder.commit()
    beat = await waiting
    rows = await queue.run("RETURN datetime.realtime().epochMillis AS now")

    assert beat.held == (item.lease,)
    assert beat.lock_until is not None
    assert beat.lock_until.timestamp() * 1000 > rows[0]["now"] - 500
    assert await queue.complete(item.lease) == [CompletionOutcome.COMPLETED]
    await session.close()
