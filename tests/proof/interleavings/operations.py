"""Everything that may meet at one job, each with an answer that can be compared."""

from collections.abc import Awaitable, Callable
from typing import Any

from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import JobFilter, Lease, NewJob
from embed_pipeline.store.database import Transaction, fetch
from tests.proof.interleavings.scenes import OWNER, RETENTION, UID
from tests.support.queue_harness import LEASE, MODEL, Neo4jUnderTest, enqueue_in, hash_for

Operation = Callable[[Neo4jUnderTest, Lease], Awaitable[Any]]
"""A queue and the lease of the scene in; what the caller hears out, without ids."""


async def lease(queue: Neo4jUnderTest, _: Lease) -> Any:
    """Under the same owner: only the fence tells the two leases apart.

    An empty lease is not an empty queue: who lost the job he had chosen looks again.
    """
    batch = await queue.lease(owner=OWNER, limit=1)
    if not batch.jobs:
        batch = await queue.lease(owner=OWNER, limit=1)
    return [(x.lease.version, x.attempts, x.lease.fence) for x in batch.jobs]


async def lease_suspects(queue: Neo4jUnderTest, _: Lease) -> Any:
    """As many suspects as may be leased together; again if the chosen one was lost."""
    batch = await queue.lease(owner=OWNER, limit=2, lane=Lane.SUSPECT)
    if not batch.jobs:
        batch = await queue.lease(owner=OWNER, limit=2, lane=Lane.SUSPECT)
    return [(x.lease.entity_uid, x.lease.version, x.attempts, x.lease.fence) for x in batch.jobs]


async def heartbeat(queue: Neo4jUnderTest, held: Lease) -> Any:
    return await queue.jobs.heartbeat([held], duration=LEASE)


async def complete(queue: Neo4jUnderTest, held: Lease) -> Any:
    return await queue.complete(held)


async def fail(queue: Neo4jUnderTest, held: Lease) -> Any:
    return await queue.fail(held)


async def release(queue: Neo4jUnderTest, held: Lease) -> Any:
    return await queue.jobs.release([held])


async def recover(queue: Neo4jUnderTest, _: Lease) -> Any:
    return [job.status for job in await queue.jobs.recover_expired(limit=10)]


async def cancel(queue: Neo4jUnderTest, held: Lease) -> Any:
    """One job, but by filter: that reads before it locks."""
    return (await queue.admin.cancel(JobFilter(ids=(held.job_id,)), by="operator")).counts


async def retry(queue: Neo4jUnderTest, _: Lease) -> Any:
    return (await queue.admin.retry_failed(JobFilter())).counts


async def cleanup(queue: Neo4jUnderTest, _: Lease) -> Any:
    return await queue.purge(RETENTION)


async def update(queue: Neo4jUnderTest, _: Lease) -> Any:
    """A client that changes the text and leaves the version alone."""
    return await _write_entity(queue, text="other", version=1)


async def new_version(queue: Neo4jUnderTest, _: Lease) -> Any:
    """A client that changes the text and counts the version up."""
    return await _write_entity(queue, text="other", version=2)


async def delete(queue: Neo4jUnderTest, _: Lease) -> Any:
    """A client that knows nothing of the queue."""

    async def work(tx: Transaction) -> None:
        await fetch(tx, "MATCH (e:Entity {name: $uid}) DETACH DELETE e", uid=UID)

    await queue.queue.database.write(work)


async def _write_entity(queue: Neo4jUnderTest, *, text: str, version: int) -> Any:
    async def work(tx: Transaction) -> Any:
        await fetch(
            tx,
            """
            MATCH (e:Entity {name: $uid}) SET e.observations = [$text], e.version = $version
            """,
            uid=UID,
            text=text,
            version=version,
        )
        wish = NewJob(UID, MODEL, version, text_hash=hash_for(UID, text))
        return await enqueue_in(queue.queue, tx, [wish])

    return await queue.queue.database.write(work)


OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation
    for operation in (
        lease,
        lease_suspects,
        heartbeat,
        complete,
        fail,
        release,
        recover,
        cancel,
        retry,
        cleanup,
        update,
        new_version,
        delete,
    )
}
