"""A client that knows no queue: plain Cypher over Bolt, jobs by trigger."""

import asyncio
from collections.abc import AsyncIterator
from typing import LiteralString

import pytest
from neo4j import AsyncManagedTransaction

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.results import CompletionOutcome
from tests.support.queue_harness import MODEL, Neo4jUnderTest, assert_consistent

PENDING = JobStatus.PENDING


@pytest.fixture
async def watched(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    """A queue whose database has the trigger."""
    triggers = queue.queue.triggers(MODEL)
    state = await triggers.install()
    assert state.is_active
    yield queue
    assert await triggers.drop()


async def jobs(queue: Neo4jUnderTest) -> list[tuple[str, int, str]]:
    found = await queue.admin.find_jobs(JobFilter(), limit=1000)
    return sorted((job.entity_uid, job.version, job.status.value) for job in found)


async def test_the_job_is_there_when_the_write_is_acknowledged(watched: Neo4jUnderTest) -> None:
    await watched.run("CREATE (:Entity {name: 'ada', observations: '[\"one\"]', version: 2})")
    await watched.run("CREATE (:Entity {name: 'bob'})")

    assert await jobs(watched) == [("ada", 2, "pending"), ("bob", 1, "pending")]
    assert_consistent(await watched.nodes())


async def test_a_job_made_by_the_trigger_is_worked_like_any_other(
    watched: Neo4jUnderTest,
) -> None:
    await watched.put_entity("ada")

    [item] = (await watched.lease()).jobs
    outcome = await watched.complete(item.lease)

    assert outcome == [CompletionOutcome.COMPLETED]
    assert await jobs(watched) == [("ada", 1, "completed")]


@pytest.mark.parametrize(
    "change",
    [
        "SET e.observations = ['changed']",
        "SET e.entityType = 'changed'",
        "REMOVE e.observations",
    ],
)
async def test_a_change_of_the_text_opens_the_job_again(
    watched: Neo4jUnderTest, change: LiteralString
) -> None:
    await watched.put_entity("ada")
    [item] = (await watched.lease()).jobs
    await watched.complete(item.lease)

    await watched.run("MATCH (e:Entity {name: 'ada'}) " + change)

    job = await watched.job("ada")
    assert (job.status, job.attempts, job.text_hash) == (PENDING, 0, None)
    assert_consistent(await watched.nodes())


async def test_what_does_not_change_the_text_does_not_open_the_job(
    watched: Neo4jUnderTest,
) -> None:
    await watched.put_entity("ada")
    [item] = (await watched.lease()).jobs
    await watched.complete(item.lease)

    await watched.run("MATCH (e:Entity {name: 'ada'}) SET e.colour = 'red', e.name = e.name")
    await watched.put_entity("ada")

    assert (await watched.job("ada")).status is JobStatus.COMPLETED


async def test_a_new_version_gets_a_job_of_its_own(watched: Neo4jUnderTest) -> None:
    await watched.put_entity("ada")
    await watched.run("MATCH (e:Entity {name: 'ada'}) SET e.version = 2")

    assert await jobs(watched) == [("ada", 1, "pending"), ("ada", 2, "pending")]


async def test_a_text_that_changes_in_flight_is_embedded_again(watched: Neo4jUnderTest) -> None:
    await watched.put_entity("ada")
    [item] = (await watched.lease()).jobs
    await watched.put_entity("ada", "changed")

    outcome = await watched.complete(item.lease)

    assert outcome == [CompletionOutcome.MOVED]
    assert (await watched.job("ada")).status is PENDING


async def test_a_failed_job_gets_a_new_chance_with_a_new_text(watched: Neo4jUnderTest) -> None:
    await watched.put_entity("ada")
    [item] = (await watched.lease()).jobs
    await watched.fail(item.lease, category=ErrorCategory.PERMANENT)

    await watched.put_entity("ada", "shorter")

    job = await watched.job("ada")
    assert (job.status, job.error, job.error_history) == (PENDING, None, ())


@pytest.mark.parametrize(
    "write",
    [
        "CREATE (:Entity)",
        "CREATE (:Entity {name: 7.5})",
        "CREATE (:Entity {name: true, version: date()})",
        "CREATE (:Entity {name: point({x: 1, y: 2}), version: 'x'})",
        "CREATE (:Entity {name: ['a', 'b']})",
        "CREATE (:Entity {name: ''})",
        "CREATE (:Entity {name: $long})",
        "CREATE (:Entity {name: 'x', version: [3]})",
        "CREATE (:Entity {name: 'x', version: 1.5})",
        "CREATE (:Entity {name: 'x', version: -1})",
        "CREATE (:Entity {name: 'x', validTo: 5})",
        "CREATE (e:Entity {name: 'x'}) DELETE e",
        "CREATE (e:Entity {name: 'x'}) WITH e SET e.observations = ['y'] WITH e DETACH DELETE e",
        "CREATE (:Other {name: 'x'})",
    ],
)
async def test_no_write_of_a_client_ever_fails(
    watched: Neo4jUnderTest, write: LiteralString
) -> None:
    await watched.run(write, long="x" * 600)

    assert await jobs(watched) == []


async def test_many_clients_at_once_get_one_job_per_entity(watched: Neo4jUnderTest) -> None:
    async def client(number: int) -> None:
        for n in range(20):
            uid = f"e{(number * 7 + n) % 40}"

            async def write(
                tx: AsyncManagedTransaction, uid: str = uid, text: str = f"{number}-{n}"
            ) -> None:
                await tx.run(
                    "MERGE (e:Entity {name: $uid}) SET e.observations = [$text]",
                    uid=uid,
                    text=text,
                )

            # A client has a driver of its own, which repeats what was the victim of a deadlock.
            async with watched.driver.session(
                database=watched.database, max_transaction_retry_time=30.0
            ) as session:
                await session.execute_write(write)

    async def worker(name: str) -> None:
        for _ in range(30):
            batch = await watched.lease(owner=name, limit=5)
            await watched.complete(*(item.lease for item in batch.jobs))

    await asyncio.gather(*(client(n) for n in range(8)), worker("a"), worker("b"))

    nodes = await watched.nodes()
    assert_consistent(nodes)
    assert len(nodes) == 40
    # Every text was wrong for these workers, so nothing may be completed.
    assert {node["status"] for node in nodes} == {"pending"}


async def test_the_trigger_is_installed_once_and_for_one_model(watched: Neo4jUnderTest) -> None:
    same = await watched.queue.triggers(MODEL).install()
    other = await watched.queue.triggers("another-model").inspect()

    assert (same.is_installed, same.is_active) == (True, True)
    assert (other.is_installed, other.is_other) == (False, True)
