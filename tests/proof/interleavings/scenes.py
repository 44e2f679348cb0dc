"""The states that two operations meet in, as nodes to be laid out again and again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString

from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import Lease, NewJob
from embed_pipeline.testing.clock import FakeClock
from tests.support.queue_harness import MODEL, Neo4jUnderTest

RETENTION = timedelta(days=7)
OWNER = "run-1"
UID = "ada"

READ: LiteralString = """
MATCH (n) WHERE n:EmbedJob OR n:Entity OR n:EmbedQueue OR n:EmbedCounters
RETURN labels(n) AS labels, properties(n) AS properties
"""
LAY_OUT: LiteralString = """
MATCH (n) WHERE n:EmbedJob OR n:Entity OR n:EmbedQueue OR n:EmbedCounters
DETACH DELETE n
WITH count(*) AS deleted
UNWIND $nodes AS node
CREATE (n:$(node.labels)) SET n = node.properties
"""


@dataclass(frozen=True)
class Scene:
    """Nodes, the time, and the lease of a worker who believes that he still holds it."""

    nodes: list[dict[str, Any]]
    now: datetime
    lease: Lease

    async def lay_out(self, queue: Neo4jUnderTest) -> None:
        queue.clock.now = self.now
        await queue.run(LAY_OUT, nodes=self.nodes)


async def _expired(queue: Neo4jUnderTest) -> Lease:
    """A leased job whose time is over and that nobody has recovered yet."""
    [item] = await queue.leased(UID, owner=OWNER)
    await queue.expire()
    return item.lease


async def _waiting(queue: Neo4jUnderTest) -> Lease:
    """A job that was recovered and can be leased again, maybe under the same owner."""
    lease = await _expired(queue)
    await queue.jobs.recover_expired(limit=1)
    return lease


async def _failed(queue: Neo4jUnderTest) -> Lease:
    """A failed job that may be retried, and whose retention is over."""
    await queue.put_entity(UID)
    await queue.admin.enqueue([NewJob(UID, MODEL)], max_attempts=1)
    batch = await queue.lease(owner=OWNER, limit=1)
    await queue.fail(batch.jobs[0].lease)
    queue.clock.advance(RETENTION + timedelta(days=1))
    return batch.jobs[0].lease


async def _completed(queue: Neo4jUnderTest) -> Lease:
    """A completed job whose retention is over."""
    [item] = await queue.leased(UID, owner=OWNER)
    await queue.complete(item.lease)
    queue.clock.advance(RETENTION + timedelta(days=1))
    return item.lease


async def _suspects(queue: Neo4jUnderTest) -> Lease:
    """Two suspects; the next attempt of the first is its last, which is made alone."""
    [item] = await queue.leased(UID, owner=OWNER)
    for _ in range(2):
        await queue.expire()
        await queue.jobs.recover_expired(limit=10)
        queue.clock.advance(timedelta(hours=1))
        if len(await queue.nodes()) == 1:
            await queue.given_jobs("eve")
            await queue.lease(owner=OWNER, limit=1, lane=Lane.SUSPECT)
            await queue.lease(owner=OWNER, limit=1, lane=Lane.HEALTHY)
    return item.lease


async def _last(queue: Neo4jUnderTest) -> Lease:
    """Two expired leases of one worker; one is the first expiry of a job at its last attempt."""
    await queue.given_jobs(UID)
    for _ in range(2):
        [item] = (await queue.lease(owner=OWNER)).jobs
        await queue.fail(item.lease)
        queue.clock.advance(timedelta(hours=1))
    await queue.given_jobs("eve")
    jobs = (await queue.lease(owner=OWNER)).jobs
    await queue.expire()
    return next(item.lease for item in jobs if item.is_last_attempt)


SCENES: dict[str, Callable[[Neo4jUnderTest], Awaitable[Lease]]] = {
    "waiting": _waiting,
    "expired": _expired,
    "failed": _failed,
    "completed": _completed,
    "suspects": _suspects,
    "last": _last,
}


async def build(queue: Neo4jUnderTest, name: str) -> Scene:
    """Get into the state in the ordinary way, and remember it."""
    await queue.wipe()
    queue.clock.now = FakeClock().now
    lease = await SCENES[name](queue)
    return Scene(await queue.run(READ), queue.clock.now, lease)
