"""Queues to test: the real one and the fake behind the same handles."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, LiteralString

from neo4j import AsyncDriver, AsyncManagedTransaction

from embed_pipeline.domain.audit import AuditEntry, Operator
from embed_pipeline.domain.coverage import Coverage, ReconcilePage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import Job, JobFilter, JobStatus, Lease, LeasedJob, NewJob
from embed_pipeline.domain.keys import KeyValue
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.domain.metrics import COUNTERS, Backlog
from embed_pipeline.domain.ports import QueueSwitch
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.results import (
    ENDED,
    Completion,
    CompletionOutcome,
    Failure,
    FailureOutcome,
    LeaseBatch,
)
from embed_pipeline.domain.text import memento_text, text_hash
from embed_pipeline.domain.vector import Vector, numbers_of, vector_of
from embed_pipeline.store import schema
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import QueueTransaction, Transaction
from embed_pipeline.store.enqueue import enqueue
from embed_pipeline.store.job_store import Neo4jJobStore
from embed_pipeline.store.limiter import Neo4jRateLimiter
from embed_pipeline.store.naming import for_queue
from embed_pipeline.store.queue import Queue, open_queue
from embed_pipeline.store.queue_admin import Neo4jQueueAdmin
from embed_pipeline.store.scan import Neo4jReconciler
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.testing.limiter import FakeRateLimiter
from embed_pipeline.testing.memory import FakeQueue

MODEL = "test-model"
DIMENSIONS = 4
LEASE = timedelta(minutes=5)
SHAPE = EntityShape()
ACME_SHAPE = EntityShape(vector="acme_embedding")
ACME = QueueConfig(queue="acme", shape=ACME_SHAPE, roll=lambda: 0.0)
"""A second queue over the same entities."""
NUMBERS = [0.5, 0.5, 0.5, 0.5]
VECTOR = vector_of(NUMBERS)

WIPE: LiteralString = """
MATCH (n) CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 10000 ROWS
"""


INDEXES: LiteralString = """
SHOW INDEXES YIELD name, type, labelsOrTypes, properties, options, state, owningConstraint
"""
LEFT_BY_INSTALL: LiteralString = "MATCH (n) RETURN labels(n) AS labels, properties(n) AS properties"
PUT_BACK: LiteralString = """
UNWIND $nodes AS node CREATE (n:$(node.labels)) SET n = node.properties
"""


@dataclass(frozen=True)
class Installed:
    """What an installation has left in an empty database."""

    indexes: list[dict[str, Any]]
    nodes: list[dict[str, Any]]


INSTALLED: dict[tuple[str, EntityShape], Installed] = {}
"""Asking for each object, and waiting for all of them, takes longer than most tests."""


def hash_for(uid: str, text: str = "text") -> str:
    return text_hash(memento_text({"name": uid, "entityType": "test", "observations": [text]}))


async def enqueue_in(queue: Queue, tx: Transaction, jobs: Sequence[NewJob]) -> list[EnqueueOutcome]:
    """Enqueue in a transaction that writes the entities, too, as a program does."""
    in_queue = QueueTransaction(tx, queue.config.queue)
    return await enqueue(in_queue, queue.config, jobs, now=queue.database.now_ms)


async def pages_of(
    reconciler: Neo4jReconciler, *, after: KeyValue = "", limit: int
) -> list[ReconcilePage]:
    """All pages of a scan, one by one."""
    pages: list[ReconcilePage] = []
    cursor: KeyValue | None = after
    while cursor is not None:
        pages.append(await reconciler.page(after=cursor, limit=limit))
        cursor = pages[-1].cursor
    return pages


class Scenario(ABC):
    """Sentences that tests begin with; mixed into both queues."""

    clock: FakeClock
    jobs: FakeQueue | Neo4jJobStore
    admin: FakeQueue | Neo4jQueueAdmin
    switch: QueueSwitch

    @abstractmethod
    async def put_entity(self, uid: str, text: str = "text", *, version: int = 1) -> None: ...

    async def given_jobs(self, *uids: str, **wish: Any) -> list[EnqueueOutcome]:
        for uid in uids:
            await self.put_entity(uid, version=wish.get("version", 1))
        outcomes = []
        for uid in uids:
            outcomes += await self.admin.enqueue([NewJob(uid, MODEL, **wish)])
            self.clock.advance(timedelta(milliseconds=1))
        return outcomes

    async def lease(self, owner: str = "run-1", limit: int = 10, **options: Any) -> LeaseBatch:
        options = {"duration": LEASE, "model": MODEL, **options}
        return await self.jobs.lease(owner=owner, limit=limit, **options)

    async def leased(self, *uids: str, owner: str = "run-1") -> list[LeasedJob]:
        """Fresh jobs, all leased to one owner, in the order of the uids."""
        await self.given_jobs(*uids)
        batch = await self.lease(owner=owner, limit=len(uids))
        by_uid = {item.lease.entity_uid: item for item in batch.jobs}
        return [by_uid[uid] for uid in uids]

    async def complete(
        self,
        *leases: Lease,
        text: str = "text",
        vector: Vector | None = VECTOR,
        hashes: Sequence[str] | None = None,
    ) -> list[CompletionOutcome]:
        digests = hashes or [hash_for(lease.entity_uid, text) for lease in leases]
        rows = [
            Completion(lease, vector, digest, tokens=3)
            for lease, digest in zip(leases, digests, strict=True)
        ]
        return await self.jobs.complete(rows)

    async def fail(
        self, *leases: Lease, category: ErrorCategory = ErrorCategory.TRANSIENT, **more: Any
    ) -> list[FailureOutcome]:
        options = {"message": "boom", **more}
        return await self.jobs.fail([Failure(lease, category, **options) for lease in leases])

    async def expire(self) -> None:
        self.clock.advance(LEASE + timedelta(seconds=1))

    async def job(self, uid: str, version: int = 1) -> Job:
        found = await self.admin.find_jobs(JobFilter(entity_uids=(uid,)))
        return next(job for job in found if job.version == version)

    async def statuses(self, *uids: str) -> list[JobStatus]:
        return [(await self.job(uid)).status for uid in uids]

    async def in_state(self, uid: str, status: JobStatus) -> Job:
        """A job that got into the state in the ordinary way."""
        await self.given_jobs(uid)
        if status is JobStatus.CANCELLED:
            await self.admin.cancel_job((await self.job(uid)).id, by="operator")
        elif status is not JobStatus.PENDING:
            batch = await self.lease(limit=1)
            if status is JobStatus.COMPLETED:
                await self.complete(batch.jobs[0].lease)
            elif status is JobStatus.FAILED:
                await self.fail(batch.jobs[0].lease, category=ErrorCategory.PERMANENT)
        job = await self.job(uid)
        assert job.status is status
        return job


@dataclass
class FakeUnderTest(Scenario):
    fake: FakeQueue = field(default_factory=FakeQueue)

    def __post_init__(self) -> None:
        self.clock = self.fake.clock
        self.jobs = self.admin = self.switch = self.fake

    async def put_entity(self, uid: str, text: str = "text", *, version: int = 1) -> None:
        self.fake.put_entity(uid, text, version=version)

    async def delete_entity(self, uid: str) -> None:
        self.fake.entities.pop(uid, None)

    async def vector(self, uid: str) -> list[float] | None:
        vector = self.fake.entities[uid].vector
        return numbers_of(vector) if vector is not None else None

    async def counters(self) -> dict[str, int]:
        return {name: self.fake.counters[name] for name in COUNTERS}

    async def last_recovery(self) -> datetime | None:
        return self.fake.last_recovery

    async def oldest_ended(self) -> timedelta | None:
        return self.fake.oldest_ended

    async def backlog(self, model: str = MODEL, *, most: int = 1000) -> Backlog:
        return await self.fake.backlog(model, most=most)

    async def purge(self, retention: timedelta) -> int:
        return await self.fake.purge_terminal(retention=dict.fromkeys(ENDED, retention))

    async def purge_actions(self, retention: timedelta) -> int:
        return await self.fake.purge_actions(retention=retention)

    def act_as(self, operator: Operator) -> None:
        self.fake.operator = operator

    async def actions(self) -> list[AuditEntry]:
        return list(self.fake.actions)

    async def reconcile(self) -> ReconcilePage:
        return await self.fake.reconcile(MODEL)

    async def enqueue_in_own_transaction(self, wish: NewJob) -> list[EnqueueOutcome]:
        return await self.fake.enqueue([wish])

    def limiter(self, limits: RateLimits) -> FakeRateLimiter:
        return FakeRateLimiter(self.clock, limits)


@dataclass
class Neo4jUnderTest(Scenario):
    driver: AsyncDriver
    database: str
    clock: FakeClock = field(default_factory=FakeClock)
    config: QueueConfig = field(default_factory=lambda: QueueConfig(roll=lambda: 0.0))
    queue: Queue = field(init=False)

    def __post_init__(self) -> None:
        self._use(
            open_queue(self.driver, database=self.database, config=self.config, clock=self.clock)
        )

    def _use(self, queue: Queue) -> None:
        self.queue = queue
        self.jobs, self.admin, self.switch = queue.jobs, queue.admin, queue.switch

    def act_as(self, operator: Operator) -> None:
        """From now on somebody is named for what is done."""
        self._use(self.queue.acting_as(operator))

    async def actions(self) -> list[AuditEntry]:
        """What operators did, the newest first."""
        return await self.queue.audit.recent()

    async def run(self, statement: LiteralString, **parameters: Any) -> list[dict[str, Any]]:
        """Plain Cypher of somebody who knows nothing of the queue."""
        async with self.driver.session(database=self.database) as session:
            result = await session.run(statement, parameters)
            return await result.data()

    async def wipe(self) -> None:
        """Empty the database; if the schema is that of an installation, only nodes are missing."""
        await self.run(WIPE)
        own = (self.config.queue, self.config.shape)
        left = INSTALLED.get(own)
        if left and left.indexes == await self.run(INDEXES):
            await self.run(PUT_BACK, nodes=left.nodes)
            return
        await self.install()
        nodes = await self.run(LEFT_BY_INSTALL)
        INSTALLED[own] = Installed(await self.run(INDEXES), nodes)

    async def install(self) -> None:
        await schema.install(
            self.driver,
            database=self.database,
            shape=self.config.shape,
            dimensions=DIMENSIONS,
            queue=self.config.queue,
        )

    async def put_entity(self, uid: str, text: str = "text", *, version: int = 1) -> None:
        await self.run(
            """
            MERGE (e:Entity {name: $uid})
            SET e.entityType = 'test', e.observations = [$text], e.version = $version
            """,
            uid=uid,
            text=text,
            version=version,
        )

    async def put_jobs(self, states: Mapping[str, tuple[JobStatus, Mapping[str, Any]]]) -> None:
        """Turn pending jobs into what they cannot become by themselves, past the store."""
        await self.run(
            "UNWIND $rows AS row MATCH (job:EmbedJob {entity_uid: row.uid})"
            " REMOVE job:EmbedPending, job.ready_at, job.urgency"
            " SET job:$(row.label), job += row.properties",
            rows=[
                {
                    "uid": uid,
                    "label": STATUS_LABELS[status.value],
                    "properties": {**properties, "status": status.value},
                }
                for uid, (status, properties) in states.items()
            ],
        )

    async def put_entities(self, uids: Sequence[str]) -> None:
        await self.run(
            "UNWIND $uids AS uid CREATE (:Entity {name: uid, version: 1, observations: ['text']})",
            uids=list(uids),
        )

    async def delete_entity(self, uid: str) -> None:
        await self.run("MATCH (e:Entity {name: $uid}) DETACH DELETE e", uid=uid)

    async def vector(self, uid: str) -> list[float] | None:
        rows = await self.run(
            "MATCH (e:Entity {name: $uid}) RETURN e[$vector] AS v",
            uid=uid,
            vector=self.config.shape.vector,
        )
        return rows[0]["v"]

    async def counters(self) -> dict[str, int]:
        return dict((await self.queue.metrics.read()).counters)

    async def last_recovery(self) -> datetime | None:
        return (await self.queue.metrics.read()).last_recovery

    async def oldest_ended(self) -> timedelta | None:
        return (await self.queue.metrics.read()).oldest_ended

    async def backlog(self, model: str = MODEL, *, most: int = 1000) -> Backlog:
        return await self.queue.metrics.backlog(model, most=most)

    async def reconcile(self) -> ReconcilePage:
        return await self.queue.reconciler(MODEL).page()

    async def enqueue_in_own_transaction(self, wish: NewJob) -> list[EnqueueOutcome]:
        async def work(tx: AsyncManagedTransaction) -> list[EnqueueOutcome]:
            return await enqueue_in(self.queue, tx, [wish])

        async with self.driver.session(database=self.database) as session:
            return await session.execute_write(work)

    def limiter(self, limits: RateLimits) -> Neo4jRateLimiter:
        return self.queue.limiter(limits)

    async def purge(self, retention: timedelta) -> int:
        return (await self.queue.purge.purge_terminal(retention=retention)).deleted

    async def purge_actions(self, retention: timedelta) -> int:
        return await self.queue.audit.purge(retention=retention)

    async def nodes(self) -> list[dict[str, Any]]:
        """All job nodes as they are, with their labels."""
        statement = "MATCH (j:EmbedJob) RETURN j {.*, labels: labels(j)} AS job ORDER BY j.id"
        rows = await self.run(for_queue(statement, self.config.queue))
        return [row["job"] for row in rows]

    async def locked_node(self, job_id: str) -> dict[str, Any]:
        """One job between two writes: without its lock, labels and properties may differ in age."""
        statement = (
            "MATCH (j:EmbedJob {id: $id}) SET j._lock = j._lock "
            "WITH j RETURN j {.*, labels: labels(j)} AS job"
        )
        [row] = await self.run(for_queue(statement, self.config.queue), id=job_id)
        return row["job"]

    async def coverage(self, **options: Any) -> dict[Coverage, int]:
        page = await self.queue.reconciler(MODEL).page(limit=1000, **options)
        return dict(page.coverage)


STATUS_LABELS = {
    "pending": "EmbedPending",
    "processing": "EmbedProcessing",
    "completed": "EmbedCompleted",
    "failed": "EmbedFailed",
    "cancelled": "EmbedCancelled",
}


QueueUnderTest = FakeUnderTest | Neo4jUnderTest
"""What the contract suite runs over."""


def assert_consistent(nodes: Sequence[dict[str, Any]]) -> None:
    """What holds between any two writes."""
    for node in nodes:
        status, labels = node["status"], set(node["labels"])
        assert labels == {"EmbedJob", STATUS_LABELS[status]}, node
        assert (node.get("lock_owner") is None) == (node.get("lock_until") is None), node
        assert (status == "processing") == (node.get("lock_owner") is not None), node
        assert (status in ("completed", "failed", "cancelled")) == ("processed_at" in node), node
        lanes = [name for name in ("ready_at", "suspect_at", "run_after") if name in node]
        assert len(lanes) == 1 or status != "pending", node
        assert ("urgency" in node) == ("ready_at" in node), node
        assert "run_after" not in node or status == "pending", node
        assert 0 <= node["attempts"] <= node["max_attempts"], node
