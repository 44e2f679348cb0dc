"""Several queues in one database: nobody notices the others."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from types import ModuleType

import pytest

from embed_pipeline.domain.errors import ConfigurationError, SchemaError
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.results import CompletionOutcome
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.store import schema
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import (
    admin as cypher_admin,
    clock as cypher_clock,
    metrics as cypher_metrics,
    purge as cypher_purge,
    reconcile as cypher_reconcile,
    trigger as cypher_trigger,
    worker as cypher_worker,
)
from embed_pipeline.store.naming import for_queue
from tests.support.queue_harness import (
    ACME,
    ACME_SHAPE,
    DIMENSIONS,
    LEASE,
    MODEL,
    NUMBERS,
    SHAPE,
    Neo4jUnderTest,
)

STATEMENTS: tuple[ModuleType, ...] = (
    cypher_admin,
    cypher_clock,
    cypher_metrics,
    cypher_purge,
    cypher_reconcile,
    cypher_trigger,
    cypher_worker,
)


@pytest.fixture
async def acme(queue: Neo4jUnderTest) -> Neo4jUnderTest:
    """A second queue beside ``queue``: the same entities, another property for their vectors."""
    second = Neo4jUnderTest(queue.driver, queue.database, clock=queue.clock, config=ACME)
    await second.install()
    return second


async def test_one_entity_has_a_job_and_a_vector_in_each_queue(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    [ours] = await queue.leased("ada")
    [theirs] = await acme.leased("ada")

    await queue.complete(ours.lease, vector=vector_of([1.0, 0.0, 0.0, 0.0]))
    await acme.complete(theirs.lease, vector=vector_of([0.0, 1.0, 0.0, 0.0]))

    assert await queue.vector("ada") == [1.0, 0.0, 0.0, 0.0]
    assert await acme.vector("ada") == [0.0, 1.0, 0.0, 0.0]
    for each in (queue, acme):
        assert (await each.admin.counts())[JobStatus.COMPLETED] == 1
        assert len(await each.nodes()) == 1


async def test_no_operation_of_one_queue_changes_a_job_of_the_other(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    # What is pending is leased by the next one.
    for status in reversed(JobStatus):
        await acme.in_state(status.value, status)
    before = await acme.nodes()

    await queue.given_jobs("a", "b")
    assert {item.lease.entity_uid for item in (await queue.lease()).jobs} == {"a", "b"}
    queue.clock.advance(timedelta(days=20))
    assert len(await queue.jobs.recover_expired(limit=100)) == 2
    assert await queue.admin.recover_owner("run-1") == []
    assert await queue.admin.release_owner("run-1") == 0
    assert (await queue.admin.retry_failed(JobFilter())).count == 0
    assert (await queue.admin.cancel(JobFilter(), by="operator")).count == 2
    queue.clock.advance(timedelta(days=20))
    assert await queue.purge(timedelta(days=14)) == 2

    assert await acme.nodes() == before
    assert (await queue.admin.counts())[JobStatus.CANCELLED] == 0


async def test_a_lease_of_one_queue_is_nothing_in_the_other(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    [item] = await acme.leased("ada")
    await queue.given_jobs("ada")

    assert await queue.jobs.release([item.lease]) == 0
    assert (await queue.jobs.heartbeat([item.lease], duration=LEASE)).lost == (item.lease,)

    assert (await acme.job("ada")).lock_owner == item.lease.owner


async def test_pause_and_breaker_stop_one_queue_only(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    for each in (queue, acme):
        await each.given_jobs("ada")

    await queue.switch.pause(by="operator")
    await queue.switch.open_breaker("quota gone")

    assert (await queue.lease()).refusal == "paused by operator"
    assert len((await acme.lease()).jobs) == 1
    assert not (await acme.switch.state()).is_paused


async def test_figures_and_counters_are_those_of_one_queue(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    [item] = await acme.leased("ada")
    await acme.jobs.release([item.lease])

    ours, theirs = await queue.queue.metrics.read(), await acme.queue.metrics.read()

    assert (ours.counts[JobStatus.PENDING], theirs.counts[JobStatus.PENDING]) == (0, 1)
    assert (ours.counters["released"], theirs.counters["released"]) == (0, 1)
    assert (await queue.backlog()).due == 0
    assert (await acme.backlog()).due == 1


async def test_queues_that_name_one_account_share_its_limit(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    limits = RateLimits(requests=1, interval=timedelta(minutes=1))

    assert (await queue.queue.limiter(limits).acquire()).is_granted
    assert not (await acme.queue.limiter(limits).acquire()).is_granted
    assert (await acme.queue.limiter(limits, name="acme").acquire()).is_granted


async def test_triggers_of_two_queues_enqueue_one_write_in_both(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    triggers = [each.queue.triggers(MODEL) for each in (queue, acme)]
    for trigger in triggers:
        assert (await trigger.install()).is_active
    try:
        await queue.put_entity("ada")

        assert await queue.statuses("ada") == await acme.statuses("ada") == [JobStatus.PENDING]
        assert await triggers[0].drop()
        await queue.put_entity("bob")
        assert await acme.statuses("bob") == [JobStatus.PENDING]
        assert (await queue.admin.counts())[JobStatus.PENDING] == 1
    finally:
        for trigger in triggers:
            await trigger.drop()


async def test_the_scan_of_one_queue_enqueues_for_itself(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    await queue.put_entity("ada")

    await acme.reconcile()

    assert (await acme.admin.counts())[JobStatus.PENDING] == 1
    assert (await queue.admin.counts())[JobStatus.PENDING] == 0


async def test_drains_of_two_queues_over_the_same_entities_complete_each_job_once(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    uids = [f"e{number}" for number in range(200)]
    for uid in uids:
        await queue.put_entity(uid)
    for each in (queue, acme):
        await each.admin.enqueue([NewJob(uid, MODEL) for uid in uids])

    async def work(each: Neo4jUnderTest, owner: str) -> list[CompletionOutcome]:
        outcomes: list[CompletionOutcome] = []
        while jobs := (await each.lease(owner=owner, limit=20)).jobs:
            outcomes += await each.complete(*(item.lease for item in jobs))
        return outcomes

    outcomes = await asyncio.gather(
        *(work(each, owner) for each in (queue, acme) for owner in ("one", "two"))
    )

    assert {outcome for page in outcomes for outcome in page} == {CompletionOutcome.COMPLETED}
    for each in (queue, acme):
        assert (await each.admin.counts())[JobStatus.COMPLETED] == len(uids)
        assert [await each.vector(uid) for uid in uids] == [NUMBERS] * len(uids)


async def test_a_second_queue_needs_a_property_of_its_own(
    queue: Neo4jUnderTest, acme: Neo4jUnderTest
) -> None:
    with pytest.raises(SchemaError, match="queue 'default' writes its vectors to the same"):
        await schema.install(
            queue.driver,
            database=queue.database,
            shape=SHAPE,
            dimensions=DIMENSIONS,
            queue="acme",
        )

    moved = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE, queue="acme")
    kept = await schema.inspect(
        queue.driver, database=queue.database, shape=ACME_SHAPE, queue="acme"
    )
    assert moved.problem
    assert "EMBED_ENTITY_VECTOR" in moved.problem
    assert kept.problem is None


async def test_a_queue_that_was_never_made_is_refused(queue: Neo4jUnderTest) -> None:
    state = await schema.inspect(
        queue.driver, database=queue.database, shape=ACME_SHAPE, queue="nobodys"
    )

    assert state.problem
    assert "embed_job_id_nobodys" in state.problem
    assert "run 'embed-pipeline init'" in state.problem


def test_every_statement_about_jobs_is_renamed() -> None:
    texts = [
        text
        for module in STATEMENTS
        for name, text in vars(module).items()
        if name.isupper() and isinstance(text, str)
    ]
    about_jobs = [text for text in texts if "EmbedJob" in text or "EmbedPending" in text]

    assert len(about_jobs) > 25
    for text in about_jobs:
        renamed = for_queue(text, "acme")
        assert renamed.replace("_acme", "") == text
        labels = ("Job", "Pending", "Processing", "Completed", "Failed", "Cancelled")
        assert not [label for label in labels if f"Embed{label} " in f"{renamed} "]
        assert for_queue(text, "default") == text


@pytest.mark.parametrize("name", ["", "Acme", "1st", "a-b", "a`b", "a b", "x" * 32, "ä"])
def test_a_name_that_is_none_gets_into_no_statement(name: str) -> None:
    with pytest.raises(ConfigurationError, match="a queue cannot be called"):
        for_queue("MATCH (job:EmbedJob) RETURN job", name)


def test_the_first_queue_has_the_plain_labels() -> None:
    assert replace(ACME, queue="default").queue == QueueConfig().queue
    assert all("_" not in obj.label for obj in schema.schema_objects(SHAPE))
