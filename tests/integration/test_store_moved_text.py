"""A job that is asked for another text while its worker dies: TLC found that it was given up."""

from datetime import timedelta

from embed_pipeline.domain.job import JobStatus, NewJob
from tests.support.queue_harness import LEASE, MODEL, Neo4jUnderTest, hash_for


async def lets_the_lease_expire(queue: Neo4jUnderTest) -> None:
    queue.clock.advance(LEASE + timedelta(seconds=1))
    await queue.jobs.recover_expired(limit=10)


async def asks_for(queue: Neo4jUnderTest, text: str) -> None:
    await queue.put_entity("ada", text)
    wish = NewJob("ada", MODEL, text_hash=hash_for("ada", text))
    await queue.admin.enqueue([wish], max_attempts=1)


async def test_a_text_asked_for_while_the_last_attempt_dies_gets_an_attempt_of_its_own(
    queue: Neo4jUnderTest,
) -> None:
    await asks_for(queue, "old")
    await queue.lease()
    await asks_for(queue, "new")

    await lets_the_lease_expire(queue)

    job = await queue.job("ada")
    assert (job.status, job.attempts, job.expiries) == (JobStatus.PENDING, 0, 1)


async def test_the_new_text_fails_like_any_other(queue: Neo4jUnderTest) -> None:
    await asks_for(queue, "old")
    await queue.lease()
    await asks_for(queue, "new")
    await lets_the_lease_expire(queue)

    await queue.lease()
    await lets_the_lease_expire(queue)

    job = await queue.job("ada")
    assert (job.status, job.text_hash) == (JobStatus.FAILED, hash_for("ada", "new"))


async def test_the_same_text_asked_for_again_gets_no_further_attempt(
    queue: Neo4jUnderTest,
) -> None:
    await asks_for(queue, "old")
    await queue.lease()
    await asks_for(queue, "old")

    await lets_the_lease_expire(queue)

    assert (await queue.job("ada")).status is JobStatus.FAILED
